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

// beginTLS reads the server name, and ends the TLS connection or passes it on. The order of the cases is the order of the
// refusals in choose: each leaves a reason in the recorder, which crypto/tls would wrap.
func (f *Frontend) beginTLS(ctx context.Context, port routing.Port, conn *client, accepted *queue) {
	recorded := &recorder{client: conn, port: port}
	secure := tls.Server(recorded, f.secure)
	handshake, cancel := context.WithTimeout(ctx, handshakeTime)
	err := secure.HandshakeContext(handshake)
	cancel()
	switch {
	case errors.Is(recorded.refused, errPassthrough):
		f.stream(ctx, recorded, recorded.replay())
	case errors.Is(recorded.refused, errNoPod):
		f.metrics.unanswered()
		endWithAlert(conn, alertInternalError)
	case recorded.refused != nil:
		f.metrics.refused("name")
		_ = conn.Close() // the conformance tests want no alert
	case err != nil:
		_ = conn.Close()
	case recorded.listener.Mode == routing.Terminate:
		f.stream(ctx, recorded, secure)
	default:
		accepted.push(secure)
	}
}

// newSecure returns the configuration of all TLS connections, whose keys of session tickets change daily.
func (f *Frontend) newSecure() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		recorded, ok := hello.Conn.(*recorder)
		if !ok {
			return nil, net.ErrClosed
		}
		if refused := f.choose(recorded, hello.ServerName); refused != nil {
			return nil, recorded.refuse(refused)
		}
		recorded.forget()
		return terminatingConfig(recorded.listener), recorded.guest.Compute()
	}}
}

// choose finds out what a server name leads to. An error says why the TLS connection does not end here.
func (f *Frontend) choose(recorded *recorder, serverName string) error {
	name := strings.ToLower(strings.TrimSuffix(serverName, "."))
	recorded.name, recorded.listener = name, f.table.Listener(recorded.port, name)
	if recorded.listener == nil {
		return errUnknownName
	}
	if recorded.listener.Mode == routing.HTTPS {
		return nil
	}
	var known bool
	recorded.targets, known = f.table.Targets(recorded.port, name)
	switch {
	case !known || !hasBackend(recorded.targets):
		return errUnknownName
	case recorded.listener.Mode == routing.Passthrough:
		return errPassthrough
	case !f.hasPod(recorded.targets):
		return errNoPod
	}
	return nil
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
