package queue

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/bergctf/berg-operator/test/lib/transport"
)

// late holds up what watches of one kind tell, while it is closed.
type late struct {
	path string

	mu    sync.Mutex
	open  chan struct{}
	asks  int
	ended bool
}

func (l *late) wrap(next http.RoundTripper) http.RoundTripper {
	return transport.Func(func(r *http.Request) (*http.Response, error) {
		concerns := strings.HasSuffix(r.URL.Path, l.path)
		watches := concerns && r.URL.Query().Get("watch") != ""
		if concerns && !watches && r.Method == http.MethodGet {
			l.mu.Lock()
			l.asks++
			l.mu.Unlock()
		}
		response, err := next.RoundTrip(r)
		if err == nil && watches {
			response.Body = &lateBody{ReadCloser: response.Body, late: l, ctx: r.Context()}
		}
		return response, err
	})
}

type lateBody struct {
	io.ReadCloser
	late *late
	ctx  context.Context
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.late.mu.Lock()
	open := b.late.open
	b.late.mu.Unlock()
	select {
	case <-open:
		return n, err
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (l *late) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open, l.asks = make(chan struct{}), 0
}

func (l *late) letThrough() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.open)
	}
}

func (l *late) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asks
}
