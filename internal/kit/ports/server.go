package ports

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/semaphore"
)

const (
	// requestTime is how long a request may take until it has arrived, with its body.
	requestTime = 10 * time.Second
	// AnswerTime is how long an answer may take after that, unless a server or a handler says otherwise.
	AnswerTime = 30 * time.Second
	// refusedTime is how long a refused client may go on sending. If its connection ended before, the kernel would drop
	// the answer.
	refusedTime = time.Second
	idleTime    = 2 * time.Minute
	maxHeader   = 16 << 10
	// maxScrapes is how many answers with metrics are made at a time. Further requests wait.
	maxScrapes = 4
)

// Options are the options of a Server.
type Options struct {
	Handler http.Handler
	// TLS: nil for plain HTTP.
	TLS *tls.Config
	// Limits of connections.
	Limits Limits
	// AnswerTime is how long an answer may take. Default: AnswerTime. A handler that streams sets its own deadlines.
	AnswerTime time.Duration
	// Anonymous: the port asks no client who it is. So no connection is ever trusted, and a request that has arrived has the time of
	// its answer.
	Anonymous bool
	// KeepAlive: a connection may have several requests. Without it no client holds a connection for longer than its request.
	KeepAlive bool
	// Log names the port.
	Log *slog.Logger

	requestTime time.Duration // default: requestTime
}

// NewServer returns an HTTP server, and the listener that it must serve, without anything around it: listener behind a gate and
// TLS. HTTP/2 is not served, because a connection then carries requests of several clients.
func NewServer(listener net.Listener, o Options) (*http.Server, net.Listener) {
	gate := NewGate(o.Limits, o.Log)
	listener = Listener{listener, gate}
	if o.TLS != nil {
		config := o.TLS.Clone()
		config.NextProtos = []string{"http/1.1"}
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
		listener = tls.NewListener(listener, Secure(config))
	}
	if o.AnswerTime == 0 {
		o.AnswerTime = AnswerTime
	}
	if o.requestTime == 0 {
		o.requestTime = requestTime
	}
	server := &http.Server{
		Handler:     http.HandlerFunc(o.serve),
		ReadTimeout: o.requestTime, WriteTimeout: o.AnswerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ConnContext: inContext,
		ErrorLog:    slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // clients can cause any number of these
	}
	if o.Anonymous {
		server.ConnState = func(conn net.Conn, state http.ConnState) {
			if guest := guestBehind(conn); guest != nil && state == http.StateIdle {
				guest.rest()
			}
		}
	}
	server.SetKeepAlivesEnabled(o.KeepAlive)
	// Shutdown waits for connections that have sent nothing yet. The untrusted ones would hold it for admitTime.
	server.RegisterOnShutdown(gate.Drain)
	return server, listener
}

// serve ends the deadline of a request that has arrived: the answer may take longer, and the server would notice the end of
// the deadline as that of the connection. Until then it counts the bytes of the body.
func (o Options) serve(w http.ResponseWriter, r *http.Request) {
	ctx, done := r.Context(), func() {}
	guest := find(ctx)
	defer func() { done() }()
	arrived := func() (err error) {
		// A writer without deadlines, such as the writer of a test, has none to end.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		if o.Anonymous && guest != nil {
			done, err = guest.handle(ctx)
		}
		return err
	}
	if r.ContentLength == 0 {
		_ = arrived() // without a body it waits for nothing
	} else {
		r.Body = &body{ReadCloser: r.Body, guest: guest, arrived: sync.OnceValue(arrived)}
	}
	o.Handler.ServeHTTP(w, r)
}

type body struct {
	io.ReadCloser
	guest   *Guest
	arrived func() error
}

// Read counts the bytes against the limit of the guest, and reports the end of the body.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.guest != nil {
		b.guest.received(n)
	}
	if errors.Is(err, io.EOF) {
		if failed := b.arrived(); failed != nil {
			return n, failed
		}
	}
	return n, err
}

// Trust notes that the client of a request has proven who it is.
func Trust(ctx context.Context) {
	if guest := find(ctx); guest != nil {
		guest.Trust()
	}
}

// Refuse prepares the refusal of a client: the connection ends after the answer, which the caller writes, whether the body
// of the request has arrived or not. The deadline lets the kernel deliver the answer: a connection that is closed with unread
// bytes is reset, and the client would see that instead.
func Refuse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	// A writer without deadlines, such as the writer of a test, has no connection.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedTime))
	if guest := find(r.Context()); guest != nil {
		guest.Refused()
	}
}

// NewMetricsHandler serves metrics. An answer is complete before it is sent: a client that does not read keeps no other one waiting.
func NewMetricsHandler(metrics prometheus.Gatherer) http.Handler {
	slots, handler := semaphore.NewWeighted(maxScrapes), promhttp.HandlerFor(metrics, promhttp.HandlerOpts{})
	return http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slots.Acquire(r.Context(), 1) == nil {
			defer slots.Release(1)
			handler.ServeHTTP(w, r)
		}
	}), AnswerTime/2, "")
}

// Stream returns a writer for an answer without an end: each write has a deadline of its own.
func Stream(w http.ResponseWriter) http.ResponseWriter { return stream{w} }

type stream struct{ http.ResponseWriter }

func (s stream) Write(p []byte) (int, error) {
	_ = http.NewResponseController(s.ResponseWriter).SetWriteDeadline(time.Now().Add(AnswerTime))
	return s.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the writer.
func (s stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }
