package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/allowlist"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// Defaults of both proxies, which docs/tunnel/proxy.md lists.
const (
	DefaultControlPort    = 36672
	DefaultDataPort       = 36673
	DefaultMaxTunnels     = 256
	DefaultMaxStreams     = 16384
	DefaultTunnelStreams  = 8192
	DefaultMaxOpening     = 256
	DefaultOpeningTimeout = 2 * time.Minute
	DefaultPeerGrace      = 10 * time.Second
	DefaultDrain          = 5 * time.Second
	DefaultConnectTimeout = time.Minute
	DefaultDialTimeout    = time.Minute
)

// How one proxy ends when nobody asked it to.
var (
	// ErrPeerGone: the other proxy has gone, or has been replaced by another one.
	ErrPeerGone = errors.New("the other proxy is gone")
	// ErrNotStarted: a port is taken, or the client proxy could not be reached in time.
	ErrNotStarted = errors.New("it could not begin")
)

// Endpoint is an address and a port.
type Endpoint struct {
	Address string
	Port    int
}

// String returns address:port, or [address]:port for IPv6.
func (e Endpoint) String() string { return net.JoinHostPort(e.Address, strconv.Itoa(e.Port)) }

// Common is what both proxies are told.
type Common struct {
	// Identity is what the proxy shows, and whom it believes.
	Identity *pki.Identity
	// MaxStreams is how many streams there may be.
	MaxStreams int
	// PeerGrace is how long the other proxy may be unreachable.
	PeerGrace time.Duration
	// Drain is how long streams may go on after the proxy was asked to end.
	Drain time.Duration
	// Version is told to whoever starts the proxy.
	Version string
	// Log has no secrets.
	Log *slog.Logger
	// Ready is called once, when the proxy is.
	Ready func(Ready)
	// Now is the time of day, for what is told to people. Deadlines do not depend on it.
	Now func() time.Time
}

// ClientOptions are those of a client proxy.
type ClientOptions struct {
	Common
	// Control and Data are where it listens for the server proxy.
	Control, Data Endpoint
	// MaxTunnels is how many tunnels there may be.
	MaxTunnels int
	// MaxTunnelStreams is how many streams one tunnel may have, so that it leaves some to the others.
	MaxTunnelStreams int
	// IdleTimeout is how long a stream may carry nothing in either direction; 0 is for ever.
	IdleTimeout time.Duration
	// MaxOpening is how many streams of one tunnel may wait for their server.
	MaxOpening int
	// OpeningTimeout is for how long each may.
	OpeningTimeout time.Duration
}

// ServerOptions are those of a server proxy.
type ServerOptions struct {
	Common
	// Control is where it listens for controllers.
	Control Endpoint
	// ClientControl and ClientData are where the client proxy listens.
	ClientControl, ClientData Endpoint
	// Servers are those that tunnels may lead to.
	Servers allowlist.Rules
	// Names looks up the names of servers.
	Names allowlist.Resolver
	// ConnectTimeout is how long to try to reach the client proxy at the start.
	ConnectTimeout time.Duration
	// DialTimeout is how long to try to reach a server.
	DialTimeout time.Duration
}

// Ready is what a proxy tells on standard output when it is, as one line of JSON.
type Ready struct {
	// Role is client or server.
	Role string `json:"role"`
	// Instance is another one for each process.
	Instance             string `json:"instance"`
	PID                  int    `json:"pid"`
	Version              string `json:"version"`
	ServerControlAddress string `json:"server_control_address,omitempty"`
	ServerControlPort    int    `json:"server_control_port,omitempty"`
	ClientControlAddress string `json:"client_control_address"`
	ClientControlPort    int    `json:"client_control_port"`
	ClientDataAddress    string `json:"client_data_address"`
	ClientDataPort       int    `json:"client_data_port"`
}

// listen opens a port. The endpoint tells which one it is where any was asked for.
func listen(at Endpoint) (*net.TCPListener, Endpoint, error) {
	listener, err := net.Listen(familyOf(at.Address), at.String())
	if err != nil {
		return nil, at, fmt.Errorf("listen at %s: %w", at, err)
	}
	bound := listener.Addr().(*net.TCPAddr)
	return listener.(*net.TCPListener), Endpoint{Address: at.Address, Port: bound.Port}, nil
}

// familyOf returns tcp4 for addresses of IPv4: 0.0.0.0 would mean both families otherwise.
func familyOf(address string) string {
	if parsed, err := netip.ParseAddr(address); err == nil && parsed.Is4() {
		return "tcp4"
	}
	return "tcp"
}
