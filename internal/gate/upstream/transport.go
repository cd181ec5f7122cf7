package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// The bounds of connections to pods.
const (
	dialTime    = 3 * time.Second
	idleTime    = 30 * time.Second
	idlePerPod  = 64
	idleTotal   = 4096
	maxHeader   = 64 << 10
	keepAlive   = 30 * time.Second
	readBuffer  = 4 << 10
	writeBuffer = 4 << 10
)

// ErrNoPod: no pod of the Service is ready.
var ErrNoPod = errors.New("no pod is ready")

// ErrNotConnected: no ready pod accepted a connection.
var ErrNotConnected = errors.New("no ready pod accepted a connection")

// Dialer connects to the pods of a Service.
type Dialer struct {
	Endpoints *Endpoints
	net       net.Dialer
}

// NewDialer returns a Dialer.
func NewDialer(endpoints *Endpoints) *Dialer {
	return &Dialer{Endpoints: endpoints, net: net.Dialer{Timeout: dialTime, KeepAlive: keepAlive}}
}

// Dial connects to the first pod that accepts, in random order.
func (d *Dialer) Dial(ctx context.Context, backend *routing.Backend) (net.Conn, error) {
	addresses := d.Endpoints.Addresses(backend.Service, backend.Port)
	if len(addresses) == 0 {
		return nil, ErrNoPod
	}
	var failed error
	for _, address := range addresses {
		conn, err := d.connect(ctx, backend, address.HostPort)
		if err == nil {
			return conn, nil
		}
		failed = err
	}
	return nil, fmt.Errorf("%w: %w", ErrNotConnected, failed)
}

// connect connects to a pod. The connection is recorded as one of the backend's route.
func (d *Dialer) connect(ctx context.Context, backend *routing.Backend, address string) (net.Conn, error) {
	conn, err := d.net.DialContext(ctx, "tcp", address)
	if err != nil || backend == nil {
		return conn, err //nolint:wrapcheck // net.OpError has the text
	}
	return backend.Use.Track(conn), nil
}

// DialFor connects like Dial. If the backend wants the PROXY protocol, the connection begins with the addresses of a client.
func (d *Dialer) DialFor(ctx context.Context, backend *routing.Backend, source, destination net.Addr) (net.Conn, error) {
	conn, err := d.Dial(ctx, backend)
	if err != nil || backend.Protocol != routing.Proxied {
		return conn, err
	}
	return announce(conn, source, destination)
}

// announce sends the addresses of a client as the first bytes of a connection to a pod.
func announce(conn net.Conn, source, destination net.Addr) (net.Conn, error) {
	if _, err := proxyproto.HeaderProxyFromAddrs(2, source, destination).WriteTo(conn); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: send the PROXY protocol header: %w", ErrNotConnected, err)
	}
	return conn, nil
}

// Transport sends HTTP requests to pods. A connection that is kept is used for the same pod only.
type Transport struct {
	dialer *Dialer
	http1  *http.Transport
	h2c    *http.Transport
	// proxied makes a connection for each request: its first bytes are the address of the client.
	proxied *http.Transport
}

// NewTransport returns a Transport.
func NewTransport(dialer *Dialer) *Transport {
	t := &Transport{dialer: dialer}
	base := func() *http.Transport {
		return &http.Transport{
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				return dialer.connect(ctx, Backend(ctx), hostPort(address))
			},
			DisableCompression: true, MaxIdleConns: idleTotal, MaxIdleConnsPerHost: idlePerPod, IdleConnTimeout: idleTime,
			MaxResponseHeaderBytes: maxHeader, ReadBufferSize: readBuffer, WriteBufferSize: writeBuffer, ExpectContinueTimeout: time.Second,
		}
	}
	t.http1, t.h2c = base(), base()
	t.proxied = base()
	t.proxied.DisableKeepAlives = true
	t.proxied.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		conn, err := dialer.connect(ctx, Backend(ctx), hostPort(address))
		if err != nil {
			return nil, err
		}
		ends, _ := ctx.Value(endsKey{}).([2]net.Addr)
		return announce(conn, ends[0], ends[1])
	}
	t.h2c.Protocols = new(http.Protocols)
	t.h2c.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// authority names a pod's port for the transports, whose pools of connections are by host: the UID makes pods distinct. Without
// it a connection that was kept would be used for another pod that got the same address, of another player.
func authority(address Address) string {
	host, port, _ := net.SplitHostPort(address.HostPort)
	return net.JoinHostPort(strings.ReplaceAll(address.Pod, ".", "-")+"."+strings.ReplaceAll(host, ":", "-"), port)
}

// hostPort is the reverse of authority.
func hostPort(name string) string {
	host, port, _ := net.SplitHostPort(name)
	_, address, _ := strings.Cut(host, ".")
	return net.JoinHostPort(strings.ReplaceAll(address, "-", ":"), port)
}

type backendKey struct{}

// WithBackend returns a request that RoundTrip sends to a backend.
func WithBackend(req *http.Request, backend *routing.Backend) *http.Request {
	return req.WithContext(context.WithValue(req.Context(), backendKey{}, backend))
}

type endsKey struct{}

// WithEnds returns a context with the addresses of a client's connection, for a backend that wants the PROXY protocol.
func WithEnds(ctx context.Context, source, destination net.Addr) context.Context {
	return context.WithValue(ctx, endsKey{}, [2]net.Addr{source, destination})
}

// RoundTrip sends a request to a pod of its backend. If a pod accepts no connection, it tries the next one.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	backend := Backend(req.Context())
	if backend == nil {
		return nil, ErrNoPod
	}
	addresses := t.dialer.Endpoints.Addresses(backend.Service, backend.Port)
	if len(addresses) == 0 {
		return nil, ErrNoPod
	}
	transport := t.http1
	switch backend.Protocol {
	case routing.HTTP1:
	case routing.H2C:
		transport = t.h2c
	case routing.Proxied:
		transport = t.proxied
	}
	if len(addresses) > 1 && req.Body != nil {
		req.Body = io.NopCloser(req.Body) // the next pod gets it if one accepts no connection; the proxy closes it
	}
	var failed error
	for _, address := range addresses {
		req.URL = &url.URL{Scheme: "http", Host: authority(address), Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery, ForceQuery: req.URL.ForceQuery}
		answer, err := transport.RoundTrip(req)
		var refused *net.OpError
		// Only a connection that was not made is tried at the next pod. A request that was sent may have had an effect.
		if err == nil || !errors.As(err, &refused) || refused.Op != "dial" {
			return answer, err //nolint:wrapcheck // the proxy reports it
		}
		failed = err
	}
	return nil, fmt.Errorf("%w: %w", ErrNotConnected, failed)
}

// Backend returns the backend of a request that WithBackend made.
func Backend(ctx context.Context) *routing.Backend {
	backend, _ := ctx.Value(backendKey{}).(*routing.Backend)
	return backend
}
