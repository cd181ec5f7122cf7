package tunnelsync

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/backoff"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
)

// The kinds of jobs.
const (
	jobSync     = "tunnels"
	jobShutdown = "shutdown"
)

// prepareInterval is between two attempts at a tunnel that failed alone.
const prepareInterval = 2 * time.Second

// callBackoff is between calls to a server proxy that does not answer.
var callBackoff = backoff.Exponential{First: 2 * time.Second, Max: 30 * time.Second}

// Syncer calls server proxies, in jobs.
type Syncer struct {
	Jobs *jobs.Runner

	mu sync.Mutex
	// clients are the connections to server proxies, which are kept for the next call.
	clients map[types.UID]connection
}

type connection struct {
	*control.Client
	address  string
	identity *pki.Identity
}

// Sync has the server proxy of a pair make its tunnels. current: the result is about the present spec. retrying: another
// attempt follows.
func (s *Syncer) Sync(o status.Observed, cfg config.Tunnel, identity *pki.Identity, now time.Time) (result status.Synced, current, retrying bool) {
	p, address := o.Proxy, controlAddress(o.Server)
	wanted, known := slices.Clone(p.Spec.Tunnels), checkTunnels(p.Spec.Tunnels, cfg)
	got := jobs.Do(s.Jobs, jobs.Job[status.Synced]{
		UID: p.UID, Name: p.Name, Kind: jobSync,
		Input: fmt.Sprintf("%d %s %s", p.Generation, address, o.Server.StartedAt.Format(time.RFC3339Nano)),
		Run: func(ctx context.Context) status.Synced {
			c, err := s.client(p.UID, address, identity)
			if err != nil {
				return status.Synced{Err: err.Error()}
			}
			return synchronise(ctx, c, cfg.CallTimeout, wanted, known)
		},
		Retry: func(result status.Synced, attempt int) time.Duration {
			switch {
			case result.Err != "":
				return callBackoff.After(attempt)
			case attempt < cfg.PrepareAttempts && slices.ContainsFunc(result.Tunnels, func(t status.Tunnel) bool { return t.Err != "" && !t.Final }):
				return prepareInterval
			}
			return 0
		},
	}, now)
	if !got.Done {
		return status.Synced{}, false, false
	}
	return got.Value, got.Value.Err == "", got.Retrying
}

// ShutDown has a server proxy delete all tunnels, and both proxies end, if they answer. It reports whether that is over.
func (s *Syncer) ShutDown(o status.Observed, cfg config.Tunnel, identity *pki.Identity, now time.Time) (done bool) {
	p, address := o.Proxy, controlAddress(o.Server)
	return jobs.Do(s.Jobs, jobs.Job[error]{
		UID: p.UID, Name: p.Name, Kind: jobShutdown,
		Run: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*cfg.CallTimeout)
			defer cancel()
			c, err := s.client(p.UID, address, identity)
			if err != nil {
				return err
			}
			synchronise(ctx, c, cfg.CallTimeout, nil, nil)
			_, err = c.Shutdown(ctx, &control.ShutdownRequest{}) // if it fails, the pods are deleted anyway
			return err
		},
	}, now).Done
}

func controlAddress(server status.Server) string {
	return hostPort(server.Address, server.Ready.ControlPort)
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

// client returns a connection to the server proxy of a pair: the last one if address and identity are the same.
func (s *Syncer) client(uid types.UID, address string, identity *pki.Identity) (*control.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, exists := s.clients[uid]; exists {
		if c.address == address && c.identity == identity {
			return c.Client, nil
		}
		s.close(uid)
	}
	c, err := control.Dial(address, identity, pki.ServerProxy)
	if err != nil {
		return nil, err
	}
	if s.clients == nil {
		s.clients = map[types.UID]connection{}
	}
	s.clients[uid] = connection{c, address, identity}
	return c, nil
}

// Close closes the connection to the server proxy of a pair.
func (s *Syncer) Close(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close(uid)
}

// close is called with the lock held.
func (s *Syncer) close(uid types.UID) {
	if c, exists := s.clients[uid]; exists {
		_ = c.Close()
		delete(s.clients, uid)
	}
}
