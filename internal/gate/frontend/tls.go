package frontend

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/bergctf/berg-operator/internal/gate/routing"
)

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
