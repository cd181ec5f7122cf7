package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/bergctf/berg-operator/internal/kit/allowlist"
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
	DefaultCheckInterval  = time.Minute
)

// Why a proxy ends that was not asked to.
var (
	// ErrPeerGone: the other proxy is gone, or was replaced by another process.
	ErrPeerGone = errors.New("the other proxy is gone")
	// ErrNotStarted: a port is in use, or the client proxy was not reached in time.
	ErrNotStarted = errors.New("the proxy could not start")
)

// Endpoint is an address and a port.
type Endpoint struct {
	Address string
	Port    int
}

// String returns address:port, or [address]:port for IPv6.
func (e Endpoint) String() string { return net.JoinHostPort(e.Address, strconv.Itoa(e.Port)) }

// Common are the options of both proxies.
type Common struct {
	// Identity is the proxy's certificate, and the authority that it trusts.
	Identity *pki.Identity
	// MaxStreams is how many streams the proxy has at most.
	MaxStreams int
	// PeerGrace is how long the other proxy may be unreachable before this one ends.
	PeerGrace time.Duration
	// Reconnect: the proxy never ends because of the other one. The server proxy connects again, and prepares its tunnels
	// again if the client proxy was replaced. The client proxy accepts another server proxy once it has lost its own.
	Reconnect bool
	// Drain is how long streams may continue after the proxy was asked to end.
	Drain time.Duration
	// Version is written in the Ready line.
	Version string
	// Log has no secrets.
	Log *slog.Logger
	// Ready is called once, when the proxy is ready.
	Ready func(Ready)
	// Now is the wall clock, for times in reports. Deadlines do not depend on it.
	Now func() time.Time
}

// ClientOptions are the options of a client proxy.
type ClientOptions struct {
	Common
	// Control and Data are where it listens for the server proxy.
	Control, Data Endpoint
	// MaxTunnels is how many tunnels the proxy has at most.
	MaxTunnels int
	// MaxTunnelStreams is how many streams one tunnel has at most, so that it leaves some to the others.
	MaxTunnelStreams int
	// IdleTimeout is how long a stream may carry no bytes in either direction; 0 is unlimited.
	IdleTimeout time.Duration
	// MaxOpening is how many streams of one tunnel may wait for their server.
	MaxOpening int
	// OpeningTimeout is how long each may wait.
	OpeningTimeout time.Duration
}

// ServerOptions are the options of a server proxy.
type ServerOptions struct {
	Common
	// Control is where it listens for controllers.
	Control Endpoint
	// ClientControl and ClientData are where the client proxy listens.
	ClientControl, ClientData Endpoint
	// Servers are the servers that tunnels may lead to.
	Servers allowlist.Rules
	// Names resolves the names of servers.
	Names allowlist.Resolver
	// ConnectTimeout is how long to try to reach the client proxy at the start.
	ConnectTimeout time.Duration
	// DialTimeout is how long to try to reach a server.
	DialTimeout time.Duration
	// CheckInterval is how often to connect to a server that no stream has used since, to know whether it answers; 0 is never.
	CheckInterval time.Duration
}

// Ready is the line of JSON that a proxy writes to standard output when it is ready.
type Ready struct {
	// Role is client or server.
	Role string `json:"role"`
	// Instance is unique to each process.
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

// listen opens a port. The returned endpoint has the port that was chosen if 0 was asked for.
func listen(endpoint Endpoint) (*net.TCPListener, Endpoint, error) {
	listener, err := net.Listen(networkName(endpoint.Address), endpoint.String())
	if err != nil {
		return nil, endpoint, fmt.Errorf("listen at %s: %w", endpoint, err)
	}
	bound := listener.Addr().(*net.TCPAddr)
	return listener.(*net.TCPListener), Endpoint{Address: endpoint.Address, Port: bound.Port}, nil
}

// networkName returns tcp4 for IPv4 addresses. 0.0.0.0 and :: are all addresses of both families: the network of a cluster may
// have IPv6 alone.
func networkName(address string) string {
	if parsed, err := netip.ParseAddr(address); err == nil && parsed.Is4() && !parsed.IsUnspecified() {
		return "tcp4"
	}
	return "tcp"
}
