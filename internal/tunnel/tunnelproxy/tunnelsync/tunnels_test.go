package tunnelsync

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
)

// caller is a server proxy that does not answer for tunnels to some servers.
type caller struct {
	control.TunnelControlClient
	silent map[string]bool
	// once: it answers only the first call to list tunnels.
	once  bool
	lists int
}

func (c *caller) ListTunnels(ctx context.Context, _ *control.ListTunnelsRequest, _ ...grpc.CallOption) (*control.ListTunnelsResponse, error) {
	if c.lists++; c.once && c.lists > 1 {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &control.ListTunnelsResponse{}, nil
}

func (c *caller) PrepareTunnel(ctx context.Context, asked *control.TunnelRequest, _ ...grpc.CallOption) (*control.TunnelSpec, error) {
	if c.silent[asked.GetServerAddress()] {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if asked.GetServerPort() == 1 {
		return nil, status.Error(codes.Unavailable, "the client proxy does not answer")
	}
	return &control.TunnelSpec{TunnelRef: &control.TunnelRef{TunnelId: uint32(asked.GetServerPort())}, Name: asked.GetName()}, nil
}

func TestATunnelThatTakesTooLongFailsAlone(t *testing.T) {
	to := func(name, server string, port int32) tunnelv1.TunnelConfiguration {
		return tunnelv1.TunnelConfiguration{Name: name, ServerAddress: server, ServerPort: port}
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		wanted := []tunnelv1.TunnelConfiguration{
			to("first", "silent.test", 80), to("second", "", 81), to("third", "silent.test", 82), to("fourth", "known.test", 83), to("fifth", "127.0.0.1", 84), to("no", "", 85),
		}
		got := synchronise(t.Context(), &caller{silent: map[string]bool{"silent.test": true}}, 5*time.Second, wanted, map[string]string{"no": "it must not be"})
		if got.Err != "" || len(got.Tunnels) != len(wanted) {
			t.Fatalf("%+v", got)
		}
		for i, tunnel := range got.Tunnels {
			bad := i == 0 || i == 2 || i == 5
			if tunnel.Name != wanted[i].Name || (tunnel.Err != "") != bad || !bad && tunnel.ID != uint32(wanted[i].ServerPort) {
				t.Errorf("%d: %+v", i, tunnel)
			}
		}
		if got.Tunnels[0].Final || !strings.Contains(got.Tunnels[0].Err, "TUNNEL_CALL_TIMEOUT") {
			t.Errorf("%+v: want it tried again", got.Tunnels[0])
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("names that no server resolves delayed each other, for %s", took)
		}
	})
}

func TestAProxyThatDoesNotAnswerIsNoTunnelsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]*caller{
			"after a call that took too long": {silent: map[string]bool{"silent.test": true}, once: true},
			"immediately":                     {},
		} {
			port := int32(80)
			if !c.once {
				port = 1
			}
			wanted := []tunnelv1.TunnelConfiguration{{Name: "a", ServerAddress: "silent.test", ServerPort: port}, {Name: "b", ServerPort: 81}}
			if got := synchronise(t.Context(), c, time.Second, wanted, nil); got.Err == "" || got.Tunnels != nil {
				t.Errorf("%s: %+v", what, got)
			}
		}
	})
}
