// Package transport stands between an operator and the API server, to look at requests and
// to answer some of them otherwise. What wraps a transport here is for rest.Config's Wrap.
package transport

import (
	"io"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
)

// Func is a RoundTripper.
type Func func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f Func) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Through lets a function answer every request, with next or without.
func Through(answer func(r *http.Request, next http.RoundTripper) (*http.Response, error)) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return Func(func(r *http.Request) (*http.Response, error) { return answer(r, next) })
	}
}

// Showing shows every request to a function before it is sent.
func Showing(look func(*http.Request)) func(http.RoundTripper) http.RoundTripper {
	return Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		look(r)
		return next.RoundTrip(r)
	})
}

// NotFound answers requests as something that does not know what is asked of it: with a
// 404 that names no object, the first so many that match.
type NotFound struct {
	Match func(*http.Request) bool
	Times int64
	// Answered counts them.
	Answered atomic.Int64
}

// Wrap answers in place of next.
func (n *NotFound) Wrap(next http.RoundTripper) http.RoundTripper {
	return Func(func(r *http.Request) (*http.Response, error) {
		if !n.Match(r) || n.Answered.Load() >= n.Times {
			return next.RoundTrip(r)
		}
		n.Answered.Add(1)
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return &http.Response{
			StatusCode: http.StatusNotFound, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: io.NopCloser(strings.NewReader("404 page not found\n")),
		}, nil
	})
}

// Body reads what a request sends, and puts it back. It is empty if that fails.
func Body(r *http.Request) string {
	if r.Body == nil {
		return ""
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return string(body)
}

// Delay holds what the API server answers to some requests, from Hold until Release: a watch
// then falls behind all others.
type Delay struct {
	Match func(*http.Request) bool
	held  atomic.Pointer[chan struct{}]
}

// Hold lets nothing more through.
func (d *Delay) Hold() {
	until := make(chan struct{})
	d.held.Store(&until)
}

// Release lets through what was held, and all that follows.
func (d *Delay) Release() {
	if until := d.held.Swap(nil); until != nil {
		close(*until)
	}
}

// Wrap stands before next.
func (d *Delay) Wrap(next http.RoundTripper) http.RoundTripper {
	return Func(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil && d.Match(r) {
			response.Body = delayedBody{response.Body, d}
		}
		return response, err
	})
}

type delayedBody struct {
	io.ReadCloser
	delay *Delay
}

func (b delayedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if until := b.delay.held.Load(); until != nil {
		<-*until
	}
	return n, err
}

// Asks reports whether a request asks who its account is, or what that may do. It is a POST, and changes nothing.
func Asks(r *http.Request) bool {
	return strings.HasPrefix(path.Base(r.URL.Path), "selfsubject")
}
