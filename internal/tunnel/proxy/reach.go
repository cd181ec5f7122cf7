package proxy

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
)

// maxChecks is how many servers are checked at the same time.
const maxChecks = 16

// reach is the result of the last check of a tunnel's server.
type reach struct {
	// problem is why it could not be reached, "" if it could.
	problem   string
	checkedAt time.Time
}

// note stores whether the server of a tunnel was reached. A tunnel that was deleted in between has none. The specification is
// compared by its pointer: each adopted tunnel has its own, also one of the same ID.
func (s *server) note(spec *control.TunnelSpec, err error) {
	id := spec.GetTunnelRef().GetTunnelId()
	known := reach{checkedAt: time.Now()}
	if err != nil {
		known.problem = err.Error()
	}
	if present, ok := s.tunnels.Load(id); ok && present.(*control.TunnelSpec) == spec {
		s.reached.Store(id, known)
	}
}

// reachedBy returns the result of the last check of a tunnel's server.
func (s *server) reachedBy(id uint32) (checked bool, problem string) {
	known, checked := s.reached.Load(id)
	if !checked {
		return false, ""
	}
	return true, known.(reach).problem
}

// checkServers connects to the servers that no stream has used for a while, until the context ends. It sends nothing.
func (s *server) checkServers(ctx context.Context) {
	tick := time.NewTicker(s.CheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ending:
			return
		case now := <-tick.C:
			s.checkAll(ctx, now)
		}
	}
}

// checkAll connects to the servers of idle tunnels, maxChecks at a time, and sends nothing. dialOnce notes the result.
func (s *server) checkAll(ctx context.Context, now time.Time) {
	slots, checks := make(chan struct{}, maxChecks), sync.WaitGroup{}
	s.tunnels.Range(func(id, t any) bool {
		// Streams note the result of their own connections, so a tunnel in use is not checked in addition.
		if known, ok := s.reached.Load(id); ok && now.Sub(known.(reach).checkedAt) < s.CheckInterval/2 {
			return true
		}
		slots <- struct{}{}
		checks.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
			defer cancel()
			if connection, err := s.dialOnce(ctx, &net.Dialer{Timeout: attemptTimeout}, t.(*control.TunnelSpec)); err == nil {
				_ = connection.Close()
			}
		})
		return true
	})
	checks.Wait()
}
