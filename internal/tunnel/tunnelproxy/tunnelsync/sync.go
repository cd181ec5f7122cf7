package tunnelsync

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

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

// Sync has the server proxy of a pair make its tunnels, in a job. Each job has a connection of its own: its handshake resumes the
// last session. current: the result is about the present spec. retrying: another
// attempt follows. The input contains the generation and the start of the server proxy: a change of either starts the job again,
// and nothing else does.
func Sync(r *jobs.Runner, o status.Observed, cfg config.Tunnel, identity *pki.Identity, now time.Time) (result status.Synced, current, retrying bool) {
	p, address := o.Proxy, controlAddress(o.Server)
	wanted, known := slices.Clone(p.Spec.Tunnels), checkTunnels(p.Spec.Tunnels, cfg)
	got := jobs.Do(r, jobs.Job[status.Synced]{
		UID: p.UID, Name: p.Name, Kind: jobSync,
		Input: fmt.Sprintf("%d %s %s", p.Generation, address, o.Server.StartedAt.Format(time.RFC3339Nano)),
		Run: func(ctx context.Context) status.Synced {
			c, err := control.Dial(address, identity, pki.ServerProxy)
			if err != nil {
				return status.Synced{Err: err.Error()}
			}
			defer c.Close() //nolint:errcheck // the calls are over
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
func ShutDown(r *jobs.Runner, o status.Observed, cfg config.Tunnel, identity *pki.Identity, now time.Time) (done bool) {
	p, address := o.Proxy, controlAddress(o.Server)
	return jobs.Do(r, jobs.Job[error]{
		UID: p.UID, Name: p.Name, Kind: jobShutdown,
		Run: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*cfg.CallTimeout)
			defer cancel()
			c, err := control.Dial(address, identity, pki.ServerProxy)
			if err != nil {
				return err
			}
			defer c.Close() //nolint:errcheck // the calls are over
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
