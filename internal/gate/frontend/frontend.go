package frontend

import (
	"crypto/tls"
	"net/http/httputil"
	"net/netip"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/upstream"
	"github.com/bergctf/berg-operator/internal/kit/ports"
)

// The times of connections.
const (
	handshakeTime = 10 * time.Second
	headerTime    = 10 * time.Second
	idleTime      = 2 * time.Minute
	keepAlive     = 30 * time.Second
	maxHeader     = 32 << 10
	maxStreams    = 100
	acceptPause   = 50 * time.Millisecond
	// guestShare is the part of all connections, as a divisor, that may wait for a first request or a pod. The oldest of them ends for a
	// further one.
	guestShare = 8
)

// Options of a Frontend.
type Options struct {
	Limits Limits
	// TrustedProxies are addresses and CIDR ranges whose connections begin with a PROXY protocol header. Without any, no
	// connection has one.
	TrustedProxies []string
	// RedirectToHTTPS answers requests without TLS for a host that is served with TLS only.
	RedirectToHTTPS bool
	// Drain is how long streams and WebSockets may continue when the program ends.
	Drain time.Duration
}

// Frontend serves ports.
type Frontend struct {
	options Options
	table   *routing.Table
	dialer  *upstream.Dialer
	proxy   *httputil.ReverseProxy
	trusted proxyproto.ConnPolicyFunc
	metrics *Metrics

	total   *counter[struct{}]
	hosts   *counter[string]
	visits  *counter[visit]
	guests  *ports.Gate
	rates   *rates
	secure  *tls.Config
	buffers *buffers
}

// enter reports whether an address may hold one more request or stream of a host. Who entered calls leave. The share of the
// address is taken first, so that one address which is at its limit takes nothing of the host's.
func (f *Frontend) enter(host string, from netip.Prefix) bool {
	if !f.visits.take(visit{host, from}) {
		return false
	}
	if !f.hosts.take(host) {
		f.visits.release(visit{host, from})
		return false
	}
	return true
}

func (f *Frontend) leave(host string, from netip.Prefix) {
	f.hosts.release(host)
	f.visits.release(visit{host, from})
}
