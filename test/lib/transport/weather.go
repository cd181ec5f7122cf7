package transport

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Refusal is the answer of an API server that refuses a request, whose body is closed.
func Refusal(r *http.Request, code int, reason metav1.StatusReason, message string) *http.Response {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if code == http.StatusTooManyRequests {
		header.Set("Retry-After", "1")
	}
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
	return &http.Response{
		StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: header,
		Body: io.NopCloser(strings.NewReader(text)),
	}
}

// Weather spoils what an operator asks of the API server, as chance has it, once it blows:
// requests are refused, and of writes the answer is lost. Watches are left alone.
type Weather struct {
	Blows atomic.Bool
	// Spoilt and Lost count requests that were refused, and writes whose answer was lost.
	Spoilt, Lost atomic.Int64

	mu sync.Mutex
	// chance is under mu.
	chance *rand.Rand
}

// NewWeather is fine until it blows. Of the same seed it draws the same lots.
func NewWeather(seed int64) *Weather {
	return &Weather{chance: rand.New(rand.NewPCG(uint64(seed), 2))}
}

// Wrap is for rest.Config's Wrap.
func (w *Weather) Wrap(next http.RoundTripper) http.RoundTripper {
	return Func(func(r *http.Request) (*http.Response, error) {
		if !w.Blows.Load() || strings.Contains(r.URL.RawQuery, "watch=true") {
			return next.RoundTrip(r)
		}
		lot := w.draw()
		switch {
		case lot < 30:
			return w.refuse(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
		case lot < 45:
			return w.refuse(r, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests), nil
		case r.Method == http.MethodGet:
			return next.RoundTrip(r)
		case lot < 85:
			return w.refuse(r, http.StatusConflict, metav1.StatusReasonConflict), nil
		case lot < 125:
			response, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			_ = response.Body.Close()
			w.Lost.Add(1)
			return nil, errors.New("the answer was lost")
		}
		return next.RoundTrip(r)
	})
}

// draw returns a number below 1000.
func (w *Weather) draw() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chance.IntN(1000)
}

func (w *Weather) refuse(r *http.Request, code int, reason metav1.StatusReason) *http.Response {
	w.Spoilt.Add(1)
	return Refusal(r, code, reason, "not now")
}
