package transport

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
)

// Kill cuts an operator's connection for good at one of its writes, as when its process is killed. Make it with
// NewKill.
type Kill struct {
	// Dead is closed when the connection is cut.
	Dead   chan struct{}
	at     int64
	lost   bool
	counts func(*http.Request) bool
	writes atomic.Int64
	once   sync.Once
}

// NewKill cuts at write number at, from 1, of those that count. When lost is set this write does not reach the API
// server, and the next operator must repeat it; otherwise only its response is lost.
func NewKill(at int64, lost bool, counts func(*http.Request) bool) *Kill {
	return &Kill{Dead: make(chan struct{}), at: at, lost: lost, counts: counts}
}

// Done reports whether the connection is cut.
func (k *Kill) Done() bool {
	select {
	case <-k.Dead:
		return true
	default:
		return false
	}
}

// Writes is how many writes counted so far.
func (k *Kill) Writes() int64 { return k.writes.Load() }

// Wrap is for rest.Config's Wrap.
func (k *Kill) Wrap(next http.RoundTripper) http.RoundTripper {
	killed := errors.New("killed")
	return Func(func(r *http.Request) (*http.Response, error) {
		if k.Done() {
			return nil, killed
		}
		if r.Method == http.MethodGet || Asks(r) || !k.counts(r) || k.writes.Add(1) < k.at {
			return next.RoundTrip(r)
		}
		switch {
		case !k.lost:
			if response, err := next.RoundTrip(r); err == nil {
				_ = response.Body.Close()
			}
		case r.Body != nil:
			_ = r.Body.Close()
		}
		k.once.Do(func() { close(k.Dead) })
		return nil, killed
	})
}
