package tunnelproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/tunnel/allowlist"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// Synced is what a server proxy was asked, and what it has answered.
type Synced struct {
	// Tunnels has all that are wanted, in the order of the spec.
	Tunnels []Tunnel
	// Err is why it could not be asked, "" if it could.
	Err string
}

// Tunnel is one tunnel as the proxies have it.
type Tunnel struct {
	Name      string
	ID        uint32
	Addresses []string
	Port      int32
	// Err is why there is none; Final: another attempt would not change that.
	Err   string
	Final bool
}

const (
	workSync = "tunnels"
	// retryPause is between two attempts at a tunnel.
	retryPause = 2 * time.Second
)

// The defaults of a tunnel.
const (
	defaultServer = "localhost"
	defaultListen = "0.0.0.0"
)

func request(t tunnelv1.TunnelConfiguration) *control.TunnelRequest {
	r := &control.TunnelRequest{
		Name: t.Name, ServerAddress: t.ServerAddress, ServerPort: t.ServerPort,
		ClientProxyAddress: t.ClientProxyAddress, ClientProxyPort: t.ClientProxyPort,
	}
	if r.ServerAddress == "" {
		r.ServerAddress = defaultServer
	}
	if r.ClientProxyAddress == "" {
		r.ClientProxyAddress = defaultListen
	}
	return r
}

// refused returns why a tunnel must not be prepared, "" if it may: what can be told before
// the proxies are asked.
func refused(index int, t tunnelv1.TunnelConfiguration, cfg config.Tunnel) string {
	field := func(name string) string { return fmt.Sprintf("spec.tunnels[%d].%s", index, name) }
	if t.ClientProxyPort != 0 && (t.ClientProxyPort == cfg.ControlPort || t.ClientProxyPort == cfg.DataPort) {
		return fmt.Sprintf("%s: %d is a port of the client proxy itself: choose another one, or 0 for a random one", field("clientProxyPort"), t.ClientProxyPort)
	}
	if _, err := netip.ParseAddr(request(t).ClientProxyAddress); err != nil {
		return fmt.Sprintf("%s: %q is no IP address: leave it out for all addresses of the client proxy", field("clientProxyAddress"), t.ClientProxyAddress)
	}
	rules := rulesOf(cfg)
	if err := rules.CheckPort(int(t.ServerPort)); err != nil {
		return fmt.Sprintf("%s: %s: an administrator may change TUNNEL_DENIED_SERVER_PORTS", field("serverPort"), err)
	}
	address, err := netip.ParseAddr(request(t).ServerAddress)
	if err != nil {
		return "" // the server proxy looks at what a name leads to
	}
	if err := rules.Check(address, int(t.ServerPort)); err != nil {
		return fmt.Sprintf("%s: %s: an administrator may change TUNNEL_ALLOWED_SERVERS", field("serverAddress"), err)
	}
	return ""
}

func rulesOf(cfg config.Tunnel) allowlist.Rules {
	rules := allowlist.Rules{Allowed: cfg.AllowedServers, Denied: cfg.DeniedServers}
	for _, p := range cfg.DeniedServerPorts {
		rules.DeniedPorts = append(rules.DeniedPorts, allowlist.Ports{First: int(p.First), Last: int(p.Last)})
	}
	return rules
}

// synchronise has the server proxy make its tunnels what they should be. What has not changed is not
// touched. refusals are by name.
func synchronise(ctx context.Context, c control.TunnelControlClient, perCall time.Duration, wanted []tunnelv1.TunnelConfiguration, refusals map[string]string) Synced {
	t := talk{c, perCall}
	listed, err := t.list(ctx)
	if err != nil {
		return Synced{Err: errorText(err)}
	}
	requests := map[string]*control.TunnelRequest{}
	for _, w := range wanted {
		if refusals[w.Name] == "" {
			requests[w.Name] = request(w)
		}
	}
	// What is in the way of others goes first: two tunnels may exchange their ports.
	ids := map[string]uint32{}
	for _, tunnel := range listed.GetTunnels() {
		spec := tunnel.GetSpec()
		ids[spec.GetName()] = spec.GetTunnelRef().GetTunnelId()
		if want := requests[spec.GetName()]; want == nil || differs(want, spec) {
			if err := t.drop(ctx, spec.GetTunnelRef().GetTunnelId()); err != nil {
				return Synced{Err: errorText(err)}
			}
		}
	}
	result, errs := Synced{Tunnels: make([]Tunnel, len(wanted))}, make([]error, len(wanted))
	turns, looked := make(chan struct{}, lookedUpAtOnce), sync.WaitGroup{}
	for i, w := range wanted {
		asked := requests[w.Name]
		switch {
		case asked == nil:
			result.Tunnels[i] = Tunnel{Name: w.Name, Err: refusals[w.Name], Final: true}
		case isName(asked.GetServerAddress()):
			// The name servers may say nothing: the other tunnels need not wait for them.
			looked.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				result.Tunnels[i], errs[i] = t.prepare(ctx, asked, ids[w.Name])
			})
		default:
			// One after the other: of two that want the same port it is always the first that has it.
			result.Tunnels[i], err = t.prepare(ctx, asked, ids[w.Name])
		}
		if err != nil {
			break
		}
	}
	looked.Wait()
	for _, failure := range errs {
		err = cmp.Or(err, failure)
	}
	if err != nil {
		return Synced{Err: errorText(err)} // of the others nothing is known either
	}
	return result
}

// talk are calls of a server proxy, each with a limit.
type talk struct {
	control.TunnelControlClient
	perCall time.Duration
}

func (t talk) list(ctx context.Context) (*control.ListTunnelsResponse, error) {
	ctx, done := context.WithTimeout(ctx, t.perCall)
	defer done()
	return t.ListTunnels(ctx, &control.ListTunnelsRequest{})
}

// drop deletes a tunnel that may be gone already.
func (t talk) drop(ctx context.Context, id uint32) error {
	ctx, done := context.WithTimeout(ctx, t.perCall)
	defer done()
	if _, err := t.DeleteTunnel(ctx, &control.TunnelRef{TunnelId: id}); status.Code(err) != codes.NotFound {
		return err
	}
	return nil
}

// prepare makes a tunnel ready, in place of another one of its name whose ID is id. What is wrong
// with it alone stands in the tunnel; an error tells nothing of it.
func (t talk) prepare(ctx context.Context, asked *control.TunnelRequest, id uint32) (Tunnel, error) {
	once := func() (*control.TunnelSpec, error) {
		ctx, done := context.WithTimeout(ctx, t.perCall)
		defer done()
		return t.PrepareTunnel(ctx, asked)
	}
	spec, err := once()
	if status.Code(err) == codes.AlreadyExists {
		if err = t.drop(ctx, id); err == nil {
			spec, err = once()
		}
	}
	switch status.Code(err) {
	case codes.OK:
		return Tunnel{
			Name: asked.GetName(), ID: spec.GetTunnelRef().GetTunnelId(), Addresses: spec.GetClientProxyAddresses(), Port: spec.GetClientProxyPort(),
		}, nil
	case codes.InvalidArgument, codes.PermissionDenied:
		return Tunnel{Name: asked.GetName(), Err: errorText(err), Final: true}, nil
	case codes.Internal, codes.ResourceExhausted, codes.AlreadyExists:
		return Tunnel{Name: asked.GetName(), Err: errorText(err)}, nil
	case codes.DeadlineExceeded:
		// Whoever answers another call is there: it is this tunnel that takes too long.
		if _, silent := t.list(ctx); silent == nil {
			return Tunnel{Name: asked.GetName(), Err: fmt.Sprintf("it could not be prepared within TUNNEL_CALL_TIMEOUT (%s): %s", t.perCall, errorText(err))}, nil
		}
	}
	return Tunnel{}, err
}

// lookedUpAtOnce is how many tunnels to servers with a name are prepared at the same time.
const lookedUpAtOnce = 16

// isName reports whether the server proxy has to look an address up.
func isName(server string) bool {
	_, err := netip.ParseAddr(server)
	return err != nil && server != defaultServer
}

// differs reports whether a tunnel is certainly not what is wanted. Where any port will do,
// the proxy itself tells.
func differs(want *control.TunnelRequest, is *control.TunnelSpec) bool {
	return want.GetServerAddress() != is.GetServerAddress() || want.GetServerPort() != is.GetServerPort() ||
		want.GetClientProxyAddress() != is.GetClientProxyAddress() ||
		want.GetClientProxyPort() != 0 && want.GetClientProxyPort() != is.GetClientProxyPort()
}

// maxError is how much of an error a status tells, in bytes.
const maxError = 1024

func errorText(err error) string {
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	return conditions.Shorten(text, maxError)
}

// syncTunnels asks the server proxy beside the workers. current: what is returned is about the
// tunnels as they are wanted now. again is when to look once more, zero for never.
func (r *Reconciler) syncTunnels(o Observed, keys Keys, now time.Time) (result Synced, current bool, again time.Duration) {
	p, cfg := o.Proxy, settingsOf(r.Config, o)
	address := net.JoinHostPort(o.Server.Address, strconv.Itoa(int(o.Server.Ready.ControlPort)))
	what := fmt.Sprintf("%d %s %s", p.Generation, address, o.Server.StartedAt.Format(time.RFC3339Nano))
	var attempt int
	var next time.Time
	r.memory.with(p.UID, func(m *remembered) {
		if m.attemptOf != what {
			m.attemptOf, m.attempt, m.next = what, 0, time.Time{}
		}
		attempt, next = m.attempt, m.next
	})
	if now.Before(next) {
		last, _ := jobs.Last[Synced](r.work, p.UID, workSync)
		return last, last.Err == "", next.Sub(now)
	}
	wanted, refusals := slices.Clone(p.Spec.Tunnels), map[string]string{}
	for i, t := range wanted {
		if why := refused(i, t, cfg); why != "" {
			refusals[t.Name] = why
		}
		if i >= cfg.Tunnels {
			refusals[t.Name] = fmt.Sprintf("spec.tunnels[%d]: a pair of proxies has %d tunnels at most: an administrator may change TUNNEL_MAX_TUNNELS", i, cfg.Tunnels)
		}
	}
	result, done := jobs.Do(r.work, p.UID, p.Name, workSync, fmt.Sprintf("%s #%d", what, attempt), func(ctx context.Context) Synced {
		caller, err := r.caller(p, address, keys.Controller)
		if err != nil {
			return Synced{Err: err.Error()}
		}
		return synchronise(ctx, caller, cfg.CallTimeout, wanted, refusals)
	})
	if !done {
		return Synced{}, false, 0
	}
	pause := time.Duration(0)
	switch {
	case result.Err != "":
		pause = min(retryPause*time.Duration(attempt+1), 30*time.Second)
	case attempt+1 < cfg.PrepareAttempts && slices.ContainsFunc(result.Tunnels, func(t Tunnel) bool { return t.Err != "" && !t.Final }):
		pause = retryPause
	}
	if pause > 0 {
		r.memory.with(p.UID, func(m *remembered) { m.attempt, m.next = attempt+1, now.Add(pause) })
	}
	return result, result.Err == "", pause
}

// caller returns what calls the server proxy at an address. It is kept for the next call.
func (r *Reconciler) caller(p *tunnelv1.ContainerNetworkTunnelProxy, address string, identity *pki.Identity) (caller *control.Client, err error) {
	r.memory.with(p.UID, func(m *remembered) {
		if m.caller != nil && m.callerAt == address {
			caller = m.caller
			return
		}
		m.hangUp()
		if caller, err = control.Dial(address, identity, pki.ServerProxy); err == nil {
			m.caller, m.callerAt = caller, address
		}
	})
	return caller, err
}

const workShutdown = "shutdown"

// shutDown deletes the tunnels of a pair and has both proxies end, as far as they answer. It
// reports whether that is done.
func (r *Reconciler) shutDown(o Observed, keys Keys) bool {
	p := o.Proxy
	address := net.JoinHostPort(o.Server.Address, strconv.Itoa(int(o.Server.Ready.ControlPort)))
	_, done := jobs.Do(r.work, p.UID, p.Name, workShutdown, "", func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, 2*r.Config.CallTimeout)
		defer cancel()
		caller, err := r.caller(p, address, keys.Controller)
		if err != nil {
			return false
		}
		synchronise(ctx, caller, r.Config.CallTimeout, nil, nil)
		// Best effort: the pods are deleted anyway.
		_, err = caller.Shutdown(ctx, &control.ShutdownRequest{})
		return err == nil
	})
	return done
}

func asRetriable(err error, to **RetriableError) bool { return errors.As(err, to) }
