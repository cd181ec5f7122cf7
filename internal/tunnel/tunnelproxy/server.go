package tunnelproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
)

// Server is what is known of a server proxy.
type Server struct {
	// Exists: it was started.
	Exists bool
	// Ended is why it does not run any more; "" while it does.
	Ended string
	// Waiting is why it is not ready yet; "" where nothing is known to keep it.
	Waiting string
	// Ready is what it said when it was; nil before.
	Ready *Line
	// Address is where it is called.
	Address string
	// StartedAt is when it began.
	StartedAt time.Time
	// Out and Err are the files with what it writes.
	Out, Err string
}

// Line is the first line that a proxy writes, as far as the operator needs it.
type Line struct {
	Role        string `json:"role"`
	PID         int64  `json:"pid"`
	ControlPort int32  `json:"server_control_port"`
}

// parseLine returns nil for what is not the line of a server proxy.
func parseLine(text []byte) *Line {
	var line Line
	if json.Unmarshal(text, &line) != nil || line.Role != "server" || line.ControlPort == 0 {
		return nil
	}
	return &line
}

// backend is how server proxies run. Its functions return at once, may be repeated, and leave
// alone what is not this pair's.
type backend interface {
	// observe tells what there is.
	observe(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (Server, error)
	// start starts it, unless it was.
	start(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, in Inputs, keys Keys) error
	// renew gives it its present certificate.
	renew(p *tunnelv1.ContainerNetworkTunnelProxy, keys Keys) error
	// stop has it end, and reports whether it has.
	stop(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (gone bool, err error)
	// clean takes away what is left of one that has ended. keepLogs: not what it has written.
	clean(p *tunnelv1.ContainerNetworkTunnelProxy, keepLogs bool) error
}

// readyFromStatus returns what the status says of a server proxy that was started at a time:
// what it said is not to be had for ever, since logs are cut.
func readyFromStatus(p *tunnelv1.ContainerNetworkTunnelProxy, startedAt time.Time) *Line {
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

func exitText(what string, code int32) string {
	switch code {
	case 3:
		return fmt.Sprintf("%s has ended with exit code 3: it has lost the other proxy", what)
	case 4:
		return fmt.Sprintf("%s has ended with exit code 4: it could not listen, or could not reach the client proxy", what)
	default:
		return fmt.Sprintf("%s has ended with exit code %d", what, code)
	}
}
