// Command solver solves the sample challenges for their ChallengeChecks: that which CHALLENGE names,
// web, pwn or shop. It finds the instance by the variables that the operator sets, and leaves the
// flag in the file that FLAG_FILE names. It believes the authorities in CERTIFICATE_AUTHORITY (PEM)
// besides the public ones: of a Gateway whose certificate you have made yourself.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/bergctf/berg-operator/test/samples/images/internal/toolbox"
	"github.com/bergctf/berg-operator/test/samples/images/solve"
)

const (
	// unreachable is the exit code that tells the operator that players do not get in.
	unreachable = 69
	// timeout bounds one attempt to reach the instance, persistence all of them: a route may
	// take a moment to be served.
	timeout     = 5 * time.Second
	persistence = 20 * time.Second
	pause       = time.Second
	// maxPage is more than a front page of the samples.
	maxPage = 1 << 16
)

// errUnreachable says that the challenge does not answer at its address, or something else does.
var errUnreachable = errors.New("the instance cannot be reached")

func main() {
	toolbox.Main(func(ctx context.Context) error {
		flag, err := play(ctx, os.Getenv)
		if errors.Is(err, errUnreachable) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(unreachable)
		}
		if err != nil {
			return err
		}
		return os.WriteFile(os.Getenv("FLAG_FILE"), []byte(flag), 0o600)
	})
}

// visitor returns what visits pages, and believes more authorities (PEM) than the public ones.
func visitor(more string) (*http.Client, error) {
	if more == "" {
		return http.DefaultClient, nil
	}
	// An image without those of the public has none.
	authorities, err := x509.SystemCertPool()
	if err != nil {
		authorities = x509.NewCertPool()
	}
	if !authorities.AppendCertsFromPEM([]byte(more)) {
		return nil, errors.New("CERTIFICATE_AUTHORITY is no certificate in PEM")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: transport}, nil
}

// play returns the flag of the challenge that the environment names.
func play(ctx context.Context, getenv func(string) string) (flag string, err error) {
	visits, err := visitor(getenv("CERTIFICATE_AUTHORITY"))
	if err != nil {
		return "", err
	}
	switch challenge := getenv("CHALLENGE"); challenge {
	case "web":
		base := getenv("WEB_URL")
		if err := await(ctx, func(ctx context.Context) error { return shows(ctx, visits, base+"/", "Mountain Herald") }); err != nil {
			return "", err
		}
		return solve.Web(ctx, visits, base, "/flag.txt")
	case "pwn":
		address := getenv("KIOSK_ENDPOINT")
		if err := await(ctx, func(ctx context.Context) error { return greets(ctx, address, "ticket kiosk") }); err != nil {
			return "", err
		}
		return solve.Pwn(ctx, address)
	case "shop":
		base := getenv("SHOP_URL")
		if err := await(ctx, func(ctx context.Context) error { return shows(ctx, visits, base+"/", "Cheese shop") }); err != nil {
			return "", err
		}
		return solve.Shop(ctx, visits, base)
	default:
		return "", fmt.Errorf("CHALLENGE is %q: it must be web, pwn or shop", challenge)
	}
}

// await tries again until an attempt succeeds or there was time enough for many.
func await(ctx context.Context, attempt func(context.Context) error) error {
	end := time.Now().Add(persistence)
	limited, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	var why error
	for {
		one, release := context.WithTimeout(limited, timeout)
		err := attempt(one)
		release()
		if err == nil {
			return nil
		}
		// The last attempt may have had no time. A connection gives up by itself then, and that
		// may be before the context says that it has ended.
		if why == nil || limited.Err() == nil && time.Now().Before(end) {
			why = err
		}
		select {
		case <-limited.Done():
			return fmt.Errorf("%w: %w", errUnreachable, why)
		case <-tick.C:
		}
	}
}

// shows asks for a page and looks for the words by which it is known.
func shows(ctx context.Context, visits *http.Client, address, words string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := visits.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(io.LimitReader(response.Body, maxPage))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers %s", address, response.Status)
	case !strings.Contains(string(page), words):
		return fmt.Errorf("%s is not the page of the challenge: another program answers", address)
	}
	return nil
}

// greets connects and looks for the words by which the service is known.
func greets(ctx context.Context, address, words string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	line, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.Contains(line, words) {
		return fmt.Errorf("%s is not the service of the challenge: another program answers", address)
	}
	return nil
}
