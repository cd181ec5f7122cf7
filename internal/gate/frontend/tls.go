package frontend

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// alertInternalError is a record that ends a connection before its handshake.
var alertInternalError = []byte{21, 3, 1, 0, 2, 2, 80}

var (
	errPassthrough = errors.New("the backend ends the TLS connection")
	errUnknownName = errors.New("no listener has this server name")
	errNoPod       = errors.New("no pod is ready")
)

// beginTLS reads the server name, and ends the TLS connection or passes it on.
func (f *Frontend) beginTLS(ctx context.Context, port routing.Port, conn net.Conn, accepted *queue) {
	recorded := &recorder{Conn: conn}
	var name string
	var listener *routing.Listener
	var targets []routing.Backend
	secure := tls.Server(recorded, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
			listener = f.table.Listener(port, name)
			if listener == nil {
				return nil, recorded.refuse(errUnknownName)
			}
			if listener.Mode != routing.HTTPS {
				var known bool
				if targets, known = f.table.Targets(port, name); !known || !hasBackend(targets) {
					return nil, recorded.refuse(errUnknownName)
				}
			}
			if listener.Mode == routing.Passthrough {
				return nil, recorded.refuse(errPassthrough)
			}
			if listener.Mode == routing.Terminate && !f.hasPod(targets) {
				return nil, recorded.refuse(errNoPod)
			}
			recorded.forget()
			return terminatingConfig(listener), nil
		},
	})
	handshake, cancel := context.WithTimeout(ctx, handshakeTime)
	err := secure.HandshakeContext(handshake)
	cancel()
	switch {
	case recorded.refused != nil && errors.Is(recorded.refused, errPassthrough):
		f.stream(ctx, name, recorded.replay(), targets)
	case recorded.refused != nil && errors.Is(recorded.refused, errNoPod):
		f.metrics.unanswered()
		endWithAlert(conn, alertInternalError)
	case recorded.refused != nil:
		f.metrics.refused("name")
		_ = conn.Close() // the conformance tests want no alert
	case err != nil:
		_ = conn.Close()
	case listener.Mode == routing.Terminate:
		f.stream(ctx, name, secure, targets)
	default:
		accepted.push(secure)
	}
}

func terminatingConfig(listener *routing.Listener) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: listener.Certificate}
	if listener.Mode == routing.HTTPS {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	return config
}

// hasBackend reports whether a reference of the route leads to a Service.
func hasBackend(targets []routing.Backend) bool {
	return slices.ContainsFunc(targets, func(b routing.Backend) bool { return !b.Invalid })
}

// hasPod reports whether a pod of one of the backends is ready.
func (f *Frontend) hasPod(targets []routing.Backend) bool {
	for i := range targets {
		if len(f.dialer.Endpoints.Addresses(targets[i].Service, targets[i].Port)) > 0 {
			return true
		}
	}
	return false
}

// endWithAlert tells the client at once why nothing follows.
func endWithAlert(conn net.Conn, alert []byte) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(alert)
	_ = conn.Close()
}

// recorder keeps what was read, until it is known that the connection ends here. After refuse, nothing is written: the library would
// send an alert of its own.
type recorder struct {
	net.Conn
	read    bytes.Buffer
	done    bool
	refused error
}

// Read reads, and keeps what was read.
func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if !r.done {
		r.read.Write(b[:n])
	}
	return n, err //nolint:wrapcheck // net.Conn has the text
}

// Write writes, unless the connection was refused.
func (r *recorder) Write(b []byte) (int, error) {
	if r.refused != nil {
		return len(b), nil
	}
	return r.Conn.Write(b) //nolint:wrapcheck // net.Conn has the text
}

// CloseWrite ends one direction, if the connection can.
func (r *recorder) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // net.Conn has the text
	}
	return nil
}

func (r *recorder) refuse(reason error) error {
	r.refused = reason
	return reason
}

func (r *recorder) forget() {
	r.done = true
	r.read = bytes.Buffer{}
}

// replay returns the connection as it was before anything was read.
func (r *recorder) replay() net.Conn {
	return &replayed{Conn: r.Conn, first: r.read.Bytes()}
}

// replayed is a connection whose first bytes were read before.
type replayed struct {
	net.Conn
	first []byte
}

// Read returns the first bytes, then those of the connection.
func (r *replayed) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b) //nolint:wrapcheck // net.Conn has the text
}

// CloseWrite ends one direction, if the connection can.
func (r *replayed) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // net.Conn has the text
	}
	return nil
}
