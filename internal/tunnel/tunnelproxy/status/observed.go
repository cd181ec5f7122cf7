package status

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
)

// Observed is everything that a reconciliation of a pair reads.
type Observed struct {
	Proxy *tunnelv1.ContainerNetworkTunnelProxy
	// Network is nil if it does not exist.
	Network *tunnelv1.ContainerNetwork
	// HostName is the node that was named as the host, "" if none was. Host is the node that is the host, nil if it does
	// not exist or is not known yet.
	HostName string
	Host     *corev1.Node
	// Client is the pod of the client proxy; nil if it does not exist.
	Client *corev1.Pod
	// Published are the ports of nodes at which the client proxy is reached; zero before.
	Published manifests.HostPorts
	Server    Server
}

// Namespace returns the namespace of the pair's network.
func (o Observed) Namespace() string {
	switch {
	case o.Client != nil:
		return o.Client.Namespace
	case o.Network != nil:
		return o.Network.Status.NetworkName
	default:
		return ""
	}
}

// Outcome holds the observations and results of one reconciliation.
type Outcome struct {
	Observed
	// State of the pair after the reconciliation.
	State tunnelv1.ContainerNetworkTunnelProxyState
	// End is why the pair has failed, "" if it has not. Step is the condition on which it shows.
	End, Step string
	// Image of the proxies, "" before it is known.
	Image string
	// Endpoint is where the server proxy finds the client proxy.
	Endpoint manifests.Endpoint
	// Backend and Publish are how the pair is made.
	Backend config.TunnelBackend
	Publish config.TunnelPublish
	// Tunnels are the tunnels that the proxies reported. Current: the report is for the present spec. Retrying: another
	// attempt follows.
	Tunnels           Synced
	Current, Retrying bool
	// Servers says why the servers of tunnels do not answer, by the names of the tunnels; "" for a server that answers. It
	// contains only tunnels whose server the server proxy has checked.
	Servers map[string]string
	// Again is after how long time alone changes the outcome, zero for never.
	Again time.Duration
}

// RequeueAt has the pair reconciled again at a time, if nothing causes it before.
func (out *Outcome) RequeueAt(due, now time.Time) {
	if wait := max(due.Sub(now), time.Millisecond); out.Again == 0 || wait < out.Again {
		out.Again = wait
	}
}

// Server is the observed state of a server proxy.
type Server struct {
	// Exists: it was started.
	Exists bool
	// Ended is why it no longer runs; "" while it does.
	Ended string
	// Waiting is why it is not ready yet; "" if no reason is known.
	Waiting string
	// Ready is the line that it wrote when it was ready; nil before.
	Ready *Line
	// Address of its control port.
	Address   string
	StartedAt time.Time
	// Out and Err are the files that it writes to.
	Out, Err string
}

// Line is the first line that a proxy writes, as far as the operator needs it.
type Line struct {
	Role        string `json:"role"`
	PID         int64  `json:"pid"`
	ControlPort int32  `json:"server_control_port"`
}

// ParseLine returns nil for text that is not the line of a server proxy. Any program could have written the text, so only a line
// that is complete counts.
func ParseLine(text []byte) *Line {
	var line Line
	if json.Unmarshal(text, &line) != nil || line.Role != "server" || line.ControlPort == 0 {
		return nil
	}
	return &line
}

// LineFromStatus returns the recorded line of a server proxy that was started at a time; nil if the status has none. Its
// log may have been rotated since.
func LineFromStatus(p *tunnelv1.ContainerNetworkTunnelProxy, startedAt time.Time) *Line {
	s := p.Status
	if s.ServerProxyControlPort == 0 || s.ServerProxyStartupTimestamp == nil || !s.ServerProxyStartupTimestamp.Time.Equal(startedAt.Truncate(time.Microsecond)) {
		return nil
	}
	line := &Line{Role: "server", ControlPort: s.ServerProxyControlPort}
	if s.ServerProxyProcessID != nil {
		line.PID = *s.ServerProxyProcessID
	}
	return line
}

// Synced is a server proxy's answer about its tunnels.
type Synced struct {
	// Tunnels has all of the spec, in its order.
	Tunnels []Tunnel
	// Err is why the server proxy could not be asked, "" if it could.
	Err string
}

// Tunnel is one tunnel as the proxies have it.
type Tunnel struct {
	Name      string
	ID        uint32
	Addresses []string
	Port      int32
	// WantedPort is the port that was asked for, 0 for a random one.
	WantedPort int32
	// Err is why it does not exist. Final: another attempt would not change that.
	Err   string
	Final bool
}
