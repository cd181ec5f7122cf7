// Command shop-bot is the moderator of the sample shop: every few seconds it opens the reviews with
// its secret token, which is the flag, in the address, and loads the images of the page as a browser
// would, telling each server which page it comes from.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"time"

	"github.com/bergctf/berg-operator/test/samples/images/internal/toolbox"
)

const (
	// defaultInterval is the time from one visit to the next; VISIT_INTERVAL sets another.
	defaultInterval = 5 * time.Second
	// visitTimeout bounds a whole visit with all images.
	visitTimeout = 10 * time.Second
	// maxPage is how much of a page is read, in bytes.
	maxPage = 1 << 20
)

func main() {
	toolbox.Main(func(ctx context.Context) error {
		shop, flag := os.Getenv("STOREFRONT_ENDPOINT"), os.Getenv("FLAG")
		if shop == "" || flag == "" {
			return errors.New("STOREFRONT_ENDPOINT and FLAG must be set: the first comes from a port named \"storefront\", the second from dynamicFlag.env")
		}
		interval := defaultInterval
		if text := os.Getenv("VISIT_INTERVAL"); text != "" {
			var err error
			if interval, err = time.ParseDuration(text); err != nil || interval <= 0 {
				return fmt.Errorf("VISIT_INTERVAL is %q: want a time such as 2s", text)
			}
		}
		return moderate(ctx, &url.URL{Scheme: "http", Host: shop, Path: "/reviews"}, flag, interval)
	})
}

func moderate(ctx context.Context, reviews *url.URL, token string, interval time.Duration) error {
	reviews.RawQuery = url.Values{"token": {token}}.Encode()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	working := true
	for {
		err := visit(ctx, reviews)
		// Told once per change: the shop may start after its moderator. The error would name the
		// address, and with it the token.
		if (err == nil) != working {
			working = err == nil
			fmt.Println("reviews can be read:", working)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

var imageSource = regexp.MustCompile(`(?i)<img[^>]*\ssrc=["']?([^"'\s>]+)`)

// visit opens the page and loads its images. Only the page itself has to work.
func visit(ctx context.Context, page *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	text, err := load(ctx, page, "")
	if err != nil {
		return err
	}
	for _, match := range imageSource.FindAllSubmatch(text, -1) {
		source, err := page.Parse(string(match[1]))
		if err != nil || source.Scheme != "http" {
			continue
		}
		// A broken image does not keep a moderator from reading on.
		_, _ = load(ctx, source, page.String())
	}
	return nil
}

func load(ctx context.Context, address *url.URL, referer string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, err
	}
	if referer != "" {
		request.Header.Set("Referer", referer)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", address.Host, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxPage))
}
