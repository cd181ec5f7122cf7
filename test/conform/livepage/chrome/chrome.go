// Package chrome is a Chromium without a window that is driven step by step, and notes what a page must not do.
package chrome

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// programs are the names of the browser: that of Debian is the first. hack/packages browser installs it.
var programs = []string{"chromium", "chromium-browser", "google-chrome"}

// ErrMissing says that there is no browser on this machine.
var ErrMissing = errors.New("install chromium: hack/packages browser")

// Browser is one with a profile of its own.
type Browser struct {
	ctx    context.Context
	cancel []context.CancelFunc
}

// New starts a browser.
func New(ctx context.Context) (*Browser, error) {
	program := ""
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		return nil, ErrMissing
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(program), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("force-device-scale-factor", "1"),
		chromedp.Flag("no-proxy-server", true), chromedp.WindowSize(1280, 900))
	if os.Geteuid() == 0 { // its sandbox wants namespaces of users, which a container often may not make; it sees pages of ours
		options = append(options, chromedp.NoSandbox)
	}
	allocated, end := chromedp.NewExecAllocator(ctx, options...)
	opened, stop := chromedp.NewContext(allocated)
	b := &Browser{ctx: opened, cancel: []context.CancelFunc{stop, end}}
	if err := chromedp.Do(opened, chromedp.Navigate("about:blank")); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close ends the browser.
func (b *Browser) Close() {
	for _, cancel := range b.cancel {
		cancel()
	}
}

// Tab is a page of the browser.
type Tab struct {
	Context context.Context
	close   context.CancelFunc
	mu      sync.Mutex
	wrong   []string
}

// Open opens an empty page that sends a header Authorization, and may only talk to the host of address.
func (b *Browser) Open(address, authorization string) (*Tab, error) {
	home, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	t := &Tab{}
	t.Context, t.close = chromedp.NewContext(b.ctx)
	err = chromedp.Listen(t.Context, func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if to, err := url.Parse(e.Request.URL); err != nil || to.Host != home.Host && to.Scheme != "about" && to.Scheme != "data" {
				t.note("it asks another host: %s", e.Request.URL)
			}
		case *log.EventEntryAdded:
			if e.Entry.Source == log.EntrySourceSecurity {
				t.note("%s: %s", e.Entry.Source, e.Entry.Text)
			}
		case *runtime.EventExceptionThrown:
			t.note("its script fails: %s", e.ExceptionDetails.Text)
		}
	})
	if err == nil {
		_, err = chromedp.Call(t.Context, network.Enable, network.EnableParams{})
	}
	if err == nil {
		headers := network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Authorization": authorization}}
		_, err = chromedp.Call(t.Context, network.SetExtraHTTPHeaders, headers)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Tab) note(format string, arguments ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrong = append(t.wrong, fmt.Sprintf(format, arguments...))
}

// Wrong is what the page did that it must not do: requests to other hosts, what its Content-Security-Policy refuses, and errors
// of its script.
func (t *Tab) Wrong() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.wrong)
}

// Close closes the page.
func (t *Tab) Close() { t.close() }

// Do does steps, one after the other.
func (t *Tab) Do(steps ...chromedp.Action[chromedp.Void]) error {
	return chromedp.Do(t.Context, steps...)
}

// Go opens an address.
func (t *Tab) Go(address string) error { return t.Do(chromedp.Navigate(address)) }

// Press presses keys, as a person does.
func (t *Tab) Press(keys string) error { return t.Do(chromedp.KeyEvent(keys)) }

// Text is the value of an expression of the page's script, as a text.
func (t *Tab) Text(expression string) (string, error) {
	return chromedp.Run(t.Context, chromedp.Evaluate[string]("String("+expression+")"))
}

// Number is the value of an expression of the page's script.
func (t *Tab) Number(expression string) (float64, error) {
	return chromedp.Run(t.Context, chromedp.Evaluate[float64](expression))
}

// Promised is the text that an expression promises.
func (t *Tab) Promised(expression string) (string, error) {
	return chromedp.Run(t.Context, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
}

// Until waits until an expression is true, also of the page that another one has replaced.
func (t *Tab) Until(expression string) error {
	const pause = 50 * time.Millisecond
	last := ""
	again := time.NewTicker(pause)
	defer again.Stop()
	for end := time.Now().Add(waits); time.Now().Before(end); <-again.C {
		is, err := t.Text(expression)
		if err == nil && is == "true" {
			return nil
		}
		last = fmt.Sprintf("%s, %v", is, err)
	}
	body, _ := t.Text("document.body.innerText") // what is known is said
	return fmt.Errorf("%s is not true after %s: %s; the page is %.2000s", expression, waits, last, body)
}

// waits is how long Until waits, on a busy machine.
const waits = 2 * time.Minute

// Prefer sets a preference of the person, such as the value dark of prefers-color-scheme.
func (t *Tab) Prefer(name, value string) error {
	_, err := chromedp.Call(t.Context, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}})
	return err
}

// Scripts lets pages that are opened from now on run scripts, or not.
func (t *Tab) Scripts(on bool) error {
	_, err := chromedp.Call(t.Context, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
	return err
}

// Size sets the size of the window in pixels.
func (t *Tab) Size(width, height int64) error { return t.Do(chromedp.EmulateViewport(width, height)) }

// Picture is what the window shows, as PNG.
func (t *Tab) Picture() ([]byte, error) { return chromedp.Run(t.Context, chromedp.CaptureScreenshot()) }
