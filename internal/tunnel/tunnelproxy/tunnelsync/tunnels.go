package tunnelsync

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	rpc "google.golang.org/grpc/status"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
)

// synchronise has a server proxy make the wanted tunnels and delete all others. A tunnel that has not changed is not
// touched. refusals are why tunnels are not made, by name. An error means that the state of the tunnels is unknown, and nothing
// of the result is reported. A failure of one tunnel is in its result.
func synchronise(ctx context.Context, c control.TunnelControlClient, perCall time.Duration, wanted []tunnelv1.TunnelConfiguration, known map[string]string) status.Synced {
	t := server{c, perCall}
	listed, err := t.list(ctx)
	if err != nil {
		return status.Synced{Err: errorText(err)}
	}
	requests := map[string]*control.TunnelRequest{}
	for _, w := range wanted {
		if known[w.Name] == "" {
			requests[w.Name] = request(w)
		}
	}
	// Tunnels are deleted first, because two of them may exchange their ports.
	ids := map[string]uint32{}
	for _, tunnel := range listed.GetTunnels() {
		spec := tunnel.GetSpec()
		ids[spec.GetName()] = spec.GetTunnelRef().GetTunnelId()
		if want := requests[spec.GetName()]; want == nil || differs(want, spec) {
			if err := t.drop(ctx, spec.GetTunnelRef().GetTunnelId()); err != nil {
				return status.Synced{Err: errorText(err)}
			}
		}
	}
	result, errs := status.Synced{Tunnels: make([]status.Tunnel, len(wanted))}, make([]error, len(wanted))
	slots, lookups := make(chan struct{}, maxLookups), sync.WaitGroup{}
	for i, w := range wanted {
		asked := requests[w.Name]
		switch {
		case asked == nil:
			result.Tunnels[i] = status.Tunnel{Name: w.Name, Err: known[w.Name], Final: true}
		case isName(asked.GetServerAddress()):
			// A name server may not answer; the other tunnels do not wait for it.
			lookups.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				result.Tunnels[i], errs[i] = t.prepare(ctx, asked, ids[w.Name])
			})
		default:
			// In sequence, so that if two tunnels ask for the same port the first always gets it.
			result.Tunnels[i], err = t.prepare(ctx, asked, ids[w.Name])
		}
		if err != nil {
			break
		}
	}
	lookups.Wait()
	for _, failure := range errs {
		err = cmp.Or(err, failure)
	}
	if err != nil {
		return status.Synced{Err: errorText(err)} // nothing is known of the others either
	}
	return result
}

// server is a server proxy that is called with a timeout.
type server struct {
	control.TunnelControlClient
	perCall time.Duration
}

func (t server) list(ctx context.Context) (*control.ListTunnelsResponse, error) {
	ctx, done := context.WithTimeout(ctx, t.perCall)
	defer done()
	return t.ListTunnels(ctx, &control.ListTunnelsRequest{})
}

// drop deletes a tunnel, which may not exist.
func (t server) drop(ctx context.Context, id uint32) error {
	ctx, done := context.WithTimeout(ctx, t.perCall)
	defer done()
	if _, err := t.DeleteTunnel(ctx, &control.TunnelRef{TunnelId: id}); rpc.Code(err) != codes.NotFound {
		return err
	}
	return nil
}

// prepare makes a tunnel ready, replacing an earlier one of its name with the given ID. A failure of this tunnel alone
// is in the result. An error means that the server proxy does not answer.
func (t server) prepare(ctx context.Context, asked *control.TunnelRequest, id uint32) (status.Tunnel, error) {
	once := func() (*control.TunnelSpec, error) {
		ctx, done := context.WithTimeout(ctx, t.perCall)
		defer done()
		return t.PrepareTunnel(ctx, asked)
	}
	spec, err := once()
	if rpc.Code(err) == codes.AlreadyExists {
		if err = t.drop(ctx, id); err == nil {
			spec, err = once()
		}
	}
	switch rpc.Code(err) {
	case codes.OK:
		return status.Tunnel{
			Name: asked.GetName(), ID: spec.GetTunnelRef().GetTunnelId(), Addresses: spec.GetClientProxyAddresses(), Port: spec.GetClientProxyPort(),
			WantedPort: asked.GetClientProxyPort(),
		}, nil
	case codes.InvalidArgument, codes.PermissionDenied:
		return status.Tunnel{Name: asked.GetName(), Err: errorText(err), Final: true}, nil
	case codes.Internal, codes.ResourceExhausted, codes.AlreadyExists:
		return status.Tunnel{Name: asked.GetName(), Err: errorText(err)}, nil
	case codes.DeadlineExceeded:
		// If the server proxy answers another call, only this tunnel takes too long.
		if _, silent := t.list(ctx); silent == nil {
			return status.Tunnel{Name: asked.GetName(), Err: fmt.Sprintf("it was not prepared within TUNNEL_CALL_TIMEOUT (%s): %s", t.perCall, errorText(err))}, nil
		}
	}
	return status.Tunnel{}, err
}

// maxLookups is how many tunnels to servers with a host name are prepared at the same time.
const maxLookups = 16

// isName reports whether the server proxy must resolve an address.
func isName(server string) bool {
	_, err := netip.ParseAddr(server)
	return err != nil && server != defaultServer
}

// differs reports whether a tunnel is not the wanted one. If a random port is wanted, any port is accepted.
func differs(want *control.TunnelRequest, current *control.TunnelSpec) bool {
	return want.GetServerAddress() != current.GetServerAddress() || want.GetServerPort() != current.GetServerPort() ||
		want.GetClientProxyAddress() != current.GetClientProxyAddress() ||
		want.GetClientProxyPort() != 0 && want.GetClientProxyPort() != current.GetClientProxyPort() && want.GetClientProxyPort() != current.GetRequestedClientProxyPort()
}

// maxError is how much of an error the status quotes, in bytes.
const maxError = 1024

func errorText(err error) string {
	text := err.Error()
	if s, ok := rpc.FromError(err); ok {
		text = s.Message()
	}
	return conditions.Shorten(text, maxError)
}
