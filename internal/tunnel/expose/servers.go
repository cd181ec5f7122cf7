package expose

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
)

const (
	// checkTimeout is how long a server may take to accept a connection.
	checkTimeout = 2 * time.Second
	// listInterval is the interval at which the own server proxy is asked whether the servers answer.
	listInterval = 5 * time.Second
)

// checkServers names the servers that do not listen. They may be started later.
func (s *session) checkServers(ctx context.Context) {
	for _, p := range s.Ports {
		dialer := net.Dialer{Timeout: checkTimeout}
		c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(int(p.Local))))
		if err != nil {
			s.say("Nothing listens at port %d of this machine yet. Start your server; a connection waits for it for a minute.", p.Local)
			continue
		}
		_ = c.Close()
	}
}

// followServers says which servers stop to answer, and which do again, until the context ends.
func (s *session) followServers(ctx context.Context, calls *control.Client) {
	away := map[string]bool{}
	tick := time.NewTicker(listInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list, cancel := context.WithTimeout(ctx, listInterval)
		all, err := calls.ListTunnels(list, &control.ListTunnelsRequest{})
		cancel()
		if err != nil {
			continue // not connected; the forwarding says so
		}
		for _, t := range all.GetTunnels() {
			name, port := t.GetSpec().GetName(), t.GetSpec().GetServerPort()
			switch failed := t.GetServerError() != ""; {
			case failed && !away[name]:
				s.say("The server at port %d of this machine does not answer: %s", port, t.GetServerError())
			case !failed && away[name] && t.GetServerChecked():
				s.say("The server at port %d of this machine answers again.", port)
			}
			away[name] = t.GetServerError() != ""
		}
	}
}

// address is where pods reach a port.
func (s *session) address(port int32) string {
	return fmt.Sprintf("%s.%s.svc:%d", s.Name, s.Namespace, port)
}
