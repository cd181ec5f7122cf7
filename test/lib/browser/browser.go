// Package browser is a Chromium without a window that visits the Gateway of a cluster, and nothing
// else of the world: what it shows is what a player sees.
package browser

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	// timeout bounds one visit, the start of the browser included, on a busy machine.
	timeout = 40 * time.Second
	// unprivileged is the user of the browser where this process is root: pages are opened without rights.
	unprivileged = 65534
)

// The browser, and what writes its list of authorities: packages chromium and libnss3-tools of Debian.
var (
	programs = []string{"chromium", "chromium-browser", "google-chrome"}
	certutil = "certutil"
)

// ErrMissing says that there is no browser on this machine.
var ErrMissing = errors.New("install chromium and libnss3-tools")

// Browser is one with a history and a list of authorities of its own, in a folder that Close removes.
type Browser struct {
	program, folder string
	arguments       []string
	credential      *syscall.Credential
}

// New makes a browser to which every name below domain is the address of a Gateway, and no other name exists.
// It believes the authorities of the certificates ca (PEM) besides those that it knows; nil is for none.
func New(ctx context.Context, domain, address string, ca []byte) (b *Browser, err error) {
	b = &Browser{}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			b.program = path
			break
		}
	}
	if _, err := exec.LookPath(certutil); err != nil || b.program == "" {
		return nil, ErrMissing
	}
	if b.folder, err = os.MkdirTemp("", "berg-browser-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	b.arguments = everyVisit(b.folder, domain, address)
	if os.Geteuid() == 0 {
		b.credential = &syscall.Credential{Uid: unprivileged, Gid: unprivileged}
		// Its sandbox wants namespaces of users, which a container often may not make. It runs as an unprivileged user instead,
		// and sees pages of ours.
		b.arguments = append(b.arguments, "--no-sandbox")
	}
	if err := b.believe(ctx, ca); err != nil {
		return nil, err
	}
	return b, b.giveAway()
}

// everyVisit are the arguments of every visit.
func everyVisit(folder, domain, address string) []string {
	return []string{
		"--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1",
		"--user-data-dir=" + filepath.Join(folder, "profile"),
		"--no-first-run", "--no-default-browser-check", "--no-proxy-server",
		// What a browser does by itself is a request to another address.
		"--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-domain-reliability",
		"--disable-extensions", "--disable-sync", "--disable-breakpad", "--metrics-recording-only", "--no-pings",
		"--disable-features=OptimizationHints,MediaRouter,DialMediaRouteProvider,Translate",
		fmt.Sprintf("--host-resolver-rules=MAP *.%s %s, MAP * ~NOTFOUND", domain, address),
	}
}

// believe makes the list of authorities. It is there even if empty: else the one of this machine's user would count.
func (b *Browser) believe(ctx context.Context, ca []byte) error {
	list := filepath.Join(b.folder, ".pki", "nssdb")
	if err := os.MkdirAll(list, 0o700); err != nil {
		return err
	}
	if err := b.authorities(ctx, list, "-N", "--empty-password"); err != nil {
		return err
	}
	if ca == nil {
		return nil
	}
	file := filepath.Join(b.folder, "authority.crt")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		return err
	}
	return b.authorities(ctx, list, "-A", "-n", "the cluster's", "-t", "C,,", "-i", file)
}

func (b *Browser) authorities(ctx context.Context, list string, arguments ...string) error {
	text, err := exec.CommandContext(ctx, certutil, append([]string{"-d", "sql:" + list}, arguments...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", certutil, err, bytes.TrimSpace(text))
	}
	return nil
}

// giveAway lets the browser's user write what is in its folder.
func (b *Browser) giveAway() error {
	if b.credential == nil {
		return nil
	}
	return filepath.WalkDir(b.folder, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, unprivileged, unprivileged)
	})
}

// Close removes what the browser has written.
func (b *Browser) Close() error { return os.RemoveAll(b.folder) }

// Page visits an address, and returns what is there once its programs have run, as HTML. An address that gives no
// page, as the browser does not believe its certificate, or finds no such name, is an error with the browser's words.
func (b *Browser) Page(ctx context.Context, address string) (string, error) {
	page, log, err := b.visit(ctx, "--dump-dom", address)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(page) == "" {
		return "", fmt.Errorf("the browser shows nothing of %s: %s", address, why(log))
	}
	return page, nil
}

// visit starts the browser for one page, and returns what it printed, and what it complained of.
func (b *Browser) visit(ctx context.Context, what ...string) (printed, log string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	command := exec.CommandContext(ctx, b.program, append(b.arguments[:len(b.arguments):len(b.arguments)], what...)...)
	// Nothing of this user: his settings, and his bus, are none of its business.
	command.Env = []string{"HOME=" + b.folder, "TMPDIR=" + b.folder, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TZ=UTC"}
	command.Dir = b.folder
	// It is many processes: they end together.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: b.credential}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	if err := command.Run(); err != nil {
		return "", "", fmt.Errorf("%s: %w: %s", filepath.Base(b.program), err, tail(complaints.String()))
	}
	return out.String(), complaints.String(), nil
}

// refusal is the name that a browser has for why there is no page.
var refusal = regexp.MustCompile(`net::ERR_[A-Z_]+`)

// why is what a browser complains of: it complains of much more, such as that there is no desktop.
func why(log string) string { return cmp.Or(refusal.FindString(log), tail(log)) }

// tail is the end of a log.
func tail(log string) string {
	const most = 5
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
