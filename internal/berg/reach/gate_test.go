package reach

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

var gates = []Target{{Address: netip.MustParseAddrPort("10.0.0.9:443"), Host: "a.example.com"}}

func TestAGatewayIsConnectedToOncePerInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		w := newWaiter(3*time.Second, clock.RealClock{}, nil)
		w.handshake = func(_ context.Context, to Target) error {
			if tries++; time.Since(began) < 100*time.Millisecond || to.Host != "a.example.com" {
				return errors.New("remote error: tls: unrecognized name")
			}
			return nil
		}
		ended := make(chan struct{})
		if over, _ := w.Gate(one, "1", gates, func() { close(ended) }); over {
			t.Fatal("it is over before it began")
		}
		<-ended
		if over, reached := w.Gate(one, "1", gates, func() { t.Error("it is connected to twice") }); !over || !reached || tries < 2 {
			t.Errorf("over: %t, reached: %t after %d attempts", over, reached, tries)
		}
		w.Forget(one)
		if over, _ := w.Gate(one, "1", gates, func() {}); over {
			t.Error("it is not forgotten")
		}
	})
}

func TestAGatewayThatIsNotReachedDelaysFewInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(time.Second, clock.RealClock{}, nil)
		w.handshake = func(ctx context.Context, _ Target) error { <-ctx.Done(); return ctx.Err() }
		ended := make(chan struct{})
		if over, _ := w.Gate(one, "1", gates, func() { close(ended) }); over {
			t.Fatal("the first one does not wait")
		}
		<-ended
		if over, reached := w.Gate(one, "1", gates, nil); !over || reached {
			t.Errorf("over: %t, reached: %t", over, reached)
		}
		if over, reached := w.Gate(two, "2", gates, nil); !over || reached {
			t.Errorf("the next one waits: %t, %t", over, reached)
		}
	})
}

// A handshake names the host, accepts any certificate, and sends nothing.
func TestAHandshakeSendsNoRequest(t *testing.T) {
	var host atomic.Value
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) { host.Store(hello.ServerName); return nil, nil }}
	server.StartTLS()
	defer server.Close()
	to := Target{Address: netip.MustParseAddrPort(server.Listener.Addr().String()), Host: "a.example.com"}
	if err := handshake(t.Context(), to); err != nil || host.Load() != "a.example.com" {
		t.Errorf("%v, asked for %v", err, host.Load())
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	to = Target{Address: netip.MustParseAddrPort(plain.Addr().String())}
	if err := handshake(t.Context(), to); err != nil {
		t.Error(err)
	}
}
