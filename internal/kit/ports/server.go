package ports

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
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
	// TrustRequests: a client is trusted as soon as its whole request has arrived, at ports that ask for no proof.
	TrustRequests bool
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
		listener = tls.NewListener(listener, config)
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
	server.SetKeepAlivesEnabled(o.KeepAlive)
	// Shutdown waits for connections that have sent nothing yet. The untrusted ones would hold it for admitTime.
	server.RegisterOnShutdown(gate.Drain)
	return server, listener
}

// serve ends the deadline of a request that has arrived: the answer may take longer, and the server would notice the end of
// the deadline as that of the connection. Until then it counts the bytes of the body.
func (o Options) serve(w http.ResponseWriter, r *http.Request) {
	guest := find(r.Context())
	arrived := func() {
		// A writer without deadlines, such as the writer of a test, has none to end.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		if o.TrustRequests && guest != nil {
			guest.Trust()
		}
	}
	if r.ContentLength == 0 {
		arrived()
	} else {
		r.Body = &body{r.Body, guest, arrived}
	}
	o.Handler.ServeHTTP(w, r)
}

type body struct {
	io.ReadCloser
	guest   *Guest
	arrived func()
}

// Read counts the bytes against the limit of the guest, and reports the end of the body.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.guest != nil {
		b.guest.received(n)
	}
	if errors.Is(err, io.EOF) {
		b.arrived()
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

// Stream returns a writer for an answer without an end: each write has a deadline of its own.
func Stream(w http.ResponseWriter) http.ResponseWriter { return stream{w} }

type stream struct{ http.ResponseWriter }

func (s stream) Write(p []byte) (int, error) {
	_ = http.NewResponseController(s.ResponseWriter).SetWriteDeadline(time.Now().Add(AnswerTime))
	return s.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the writer.
func (s stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }
