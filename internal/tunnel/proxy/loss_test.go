package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// forward passes connections on as kubectl port-forward does, and counts those that are reset.
func forward(t testing.TB, to string, resets *atomic.Int64) Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	copies := func(to, from *net.TCPConn) {
		_, err := io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			resets.Add(1)
		}
		_ = to.CloseWrite()
	}
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			all.Go(func() {
				var both sync.WaitGroup
				both.Go(func() { copies(out.(*net.TCPConn), in.(*net.TCPConn)) })
				copies(in.(*net.TCPConn), out.(*net.TCPConn))
				both.Wait()
				_, _ = in.Close(), out.Close()
			})
		}
	})
	return Endpoint{Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
}

// kubectl port-forward ends with the first connection of the pod that is reset. Clients and servers may reset theirs.
func TestNoResetReachesADataConnection(t *testing.T) {
	flood := func(c *net.TCPConn) {
		for b := make([]byte, 64<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
	reset := func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }
	for name, c := range map[string]struct {
		server func(*net.TCPConn)
		client func(testing.TB, *net.TCPConn)
	}{
		"a client resets an idle stream": {echo, func(t testing.TB, c *net.TCPConn) { asks(t, c, "hello"); reset(c) }},
		"a client resets during a download": {flood, func(t testing.TB, c *net.TCPConn) {
			if _, err := io.ReadFull(c, make([]byte, 1<<20)); err != nil {
				t.Error(err)
			}
			reset(c)
		}},
		"a client closes during a download": {flood, func(t testing.TB, c *net.TCPConn) {
			if _, err := io.ReadFull(c, make([]byte, 1<<20)); err != nil {
				t.Error(err)
			}
			_ = c.Close()
		}},
		"a client resets after the end of its direction": {func(c *net.TCPConn) {
			_, _ = io.Copy(io.Discard, c)
			flood(c)
		}, func(t testing.TB, c *net.TCPConn) {
			_ = c.CloseWrite()
			if _, err := io.ReadFull(c, make([]byte, 1<<20)); err != nil {
				t.Error(err)
			}
			reset(c)
		}},
		"a client leaves before the server greets it": {func(c *net.TCPConn) { _, _ = io.WriteString(c, strings.Repeat("welcome", 1000)) }, func(_ testing.TB, c *net.TCPConn) { reset(c) }},
		"a server resets during an upload": {func(c *net.TCPConn) {
			_, _ = io.ReadFull(c, make([]byte, 1<<20))
			reset(c)
		}, func(_ testing.TB, c *net.TCPConn) { flood(c) }},
		"a server resets after the end of its direction": {func(c *net.TCPConn) {
			_ = c.CloseWrite()
			_, _ = io.ReadFull(c, make([]byte, 1<<20))
			reset(c)
		}, func(_ testing.TB, c *net.TCPConn) { flood(c) }},
	} {
		t.Run(name, func(t *testing.T) {
			var resets atomic.Int64
			p := start(t, func(o *options) {
				o.between = func(r Ready) (Endpoint, Endpoint) {
					at := func(port int) string { return Endpoint{Address: "127.0.0.1", Port: port}.String() }
					return forward(t, at(r.ClientControlPort), &resets), forward(t, at(r.ClientDataPort), &resets)
				}
			})
			_, at := p.prepare("one", serve(t, c.server))
			for range 20 {
				connection := dial(t, at)
				c.client(t, connection)
				_ = connection.Close()
			}
			within(t, "all streams have ended", func() bool {
				all := p.list()
				return all.GetActiveStreams() == 0 && all.GetTunnels()[0].GetOpeningStreams() == 0
			})
			_, other := p.prepare("two", serve(t, echo))
			if err := once(other); err != nil {
				t.Error(err)
			}
			if n := resets.Load(); n != 0 {
				t.Errorf("%d connections between the proxies were reset", n)
			}
		})
	}
}

// losses is a pair whose ends are replaced one by one.
type losses struct {
	testing.TB
	dirs map[pki.Role]string
	log  *testLog
}

func (l *losses) common() Common {
	return Common{
		MaxStreams: 100, PeerGrace: 200 * time.Millisecond, Drain: 100 * time.Millisecond, Reconnect: true, Now: time.Now,
		Log: slog.New(slog.NewJSONHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

func (l *losses) client(control, data int) (Ready, func() error) {
	l.Helper()
	return run(l, func(ctx context.Context, ready func(Ready)) error {
		o := ClientOptions{
			Common: l.common(), Control: Endpoint{"127.0.0.1", control}, Data: Endpoint{"127.0.0.1", data},
			MaxTunnels: 16, MaxTunnelStreams: 100, MaxOpening: 64, OpeningTimeout: time.Minute,
		}
		o.Identity, o.Ready = identityOf(l, l.dirs[pki.ClientProxy]), ready
		return RunClient(ctx, o)
	})
}

func (l *losses) server(control, data Endpoint) (*control.Client, func() error) {
	l.Helper()
	r, end := run(l, func(ctx context.Context, ready func(Ready)) error {
		o := ServerOptions{
			Common: l.common(), Control: Endpoint{Address: "127.0.0.1"}, ClientControl: control, ClientData: data,
			Servers: loopbackRules(), Names: net.DefaultResolver, ConnectTimeout: timeout, DialTimeout: time.Minute,
		}
		o.Identity, o.Ready = identityOf(l, l.dirs[pki.ServerProxy]), ready
		return RunServer(ctx, o)
	})
	return l.controller(r), end
}

func (l *losses) controller(r Ready) *control.Client {
	l.Helper()
	c, err := control.Dial(Endpoint{Address: "127.0.0.1", Port: r.ServerControlPort}.String(), identityOf(l, l.dirs[pki.Controller]), pki.ServerProxy)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = c.Close() })
	return c
}

func newLosses(t *testing.T) *losses {
	countBefore(t)
	l := &losses{TB: t, log: &testLog{}}
	_, l.dirs = certificates(t, time.Now(), time.Hour)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(l.log.String())
		}
	})
	return l
}

func TestAClientProxyIsReplaced(t *testing.T) {
	l := newLosses(t)
	first, end := l.client(0, 0)
	controls, datas := Endpoint{"127.0.0.1", first.ClientControlPort}, Endpoint{"127.0.0.1", first.ClientDataPort}
	calls, endServer := l.server(controls, datas)
	var at []string
	for _, name := range []string{"deleted", "one", "two"} {
		spec, err := calls.PrepareTunnel(t.Context(), &control.TunnelRequest{Name: name, ServerPort: int32(serve(t, echo)), ClientProxyAddress: "127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		if name == "deleted" {
			if _, err := calls.DeleteTunnel(t.Context(), spec.GetTunnelRef()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		at = append(at, Endpoint{"127.0.0.1", int(spec.GetClientProxyPort())}.String())
	}
	for range 3 {
		if err := end(); err != nil {
			t.Errorf("the client proxy ended with %v", err)
		}
		// Longer than the grace of the server proxy.
		<-time.After(500 * time.Millisecond)
		_, end = l.client(controls.Port, datas.Port)
		for _, a := range at {
			within(t, "the tunnel at "+a+" works again", func() bool { return once(a) == nil })
		}
	}
	all, err := calls.ListTunnels(t.Context(), &control.ListTunnelsRequest{})
	if err != nil || len(all.GetTunnels()) != 2 {
		t.Errorf("%v, %v: want both tunnels", all, err)
	}
	if err := endServer(); err != nil {
		t.Errorf("the server proxy ended with %v", err)
	}
}

// A tunnel whose port is in use at the next client proxy has another one there, which the list shows.
func TestAPortIsTakenAtTheNextClientProxy(t *testing.T) {
	l := newLosses(t)
	first, end := l.client(0, 0)
	controls, datas := Endpoint{"127.0.0.1", first.ClientControlPort}, Endpoint{"127.0.0.1", first.ClientDataPort}
	calls, _ := l.server(controls, datas)
	request := &control.TunnelRequest{Name: "one", ServerPort: int32(serve(t, echo)), ClientProxyAddress: "127.0.0.1"}
	spec, err := calls.PrepareTunnel(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	_ = end()
	taken, err := net.Listen("tcp", Endpoint{"127.0.0.1", int(spec.GetClientProxyPort())}.String())
	if err != nil {
		t.Fatal(err)
	}
	l.client(controls.Port, datas.Port)
	defer func() { _ = taken.Close() }()
	var again *control.TunnelSpec
	within(t, "the tunnel has another port", func() bool {
		all, err := calls.ListTunnels(t.Context(), &control.ListTunnelsRequest{})
		if err != nil || len(all.GetTunnels()) != 1 {
			return false
		}
		again = all.GetTunnels()[0].GetSpec()
		return again.GetClientProxyPort() != spec.GetClientProxyPort()
	})
	if err := once(Endpoint{"127.0.0.1", int(again.GetClientProxyPort())}.String()); err != nil {
		t.Error(err)
	}
}

// A server proxy that was lost is replaced by another one with the certificates of the pair, but never one that is connected.
func TestAServerProxyIsReplaced(t *testing.T) {
	l := newLosses(t)
	r, _ := l.client(0, 0)
	g := newGate(t, Endpoint{"127.0.0.1", r.ClientControlPort}.String())
	gate, datas := Endpoint{"127.0.0.1", g.Addr().(*net.TCPAddr).Port}, Endpoint{"127.0.0.1", r.ClientDataPort}
	calls, endFirst := l.server(gate, datas)
	request := &control.TunnelRequest{Name: "one", ServerPort: int32(serve(t, echo)), ClientProxyAddress: "127.0.0.1"}
	spec, err := calls.PrepareTunnel(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	held := dial(t, Endpoint{"127.0.0.1", int(spec.GetClientProxyPort())}.String())
	asks(t, held, "before")
	peer, err := control.Dial(Endpoint{"127.0.0.1", r.ClientControlPort}.String(), identityOf(t, l.dirs[pki.ServerProxy]), pki.ClientProxy)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	second, err := peer.NewStreamsConnection(withInstance(t.Context(), "second"))
	if err == nil {
		_, err = second.Recv()
	}
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "another server proxy is connected") {
		t.Errorf("a second server proxy: %v", err)
	}
	asks(t, held, "still")

	g.cut(true)
	next, _ := l.server(Endpoint{"127.0.0.1", r.ClientControlPort}, datas)
	isClosed(t, held)
	if all, err := next.ListTunnels(t.Context(), &control.ListTunnelsRequest{}); err != nil || len(all.GetTunnels()) != 0 {
		t.Errorf("%v, %v: want no tunnels of the former server proxy", all, err)
	}
	request.ServerPort = int32(serve(t, echo))
	if spec, err = next.PrepareTunnel(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	at := Endpoint{"127.0.0.1", int(spec.GetClientProxyPort())}.String()
	if err := once(at); err != nil {
		t.Error(err)
	}
	// The former one comes back, and takes nothing.
	g.open()
	within(t, "the former server proxy is refused", func() bool { return strings.Contains(l.log.String(), "another server proxy is connected") })
	if err := once(at); err != nil {
		t.Error(err)
	}
	if err := endFirst(); err != nil {
		t.Errorf("the former server proxy ended with %v", err)
	}
	if err := once(at); err != nil {
		t.Error(err)
	}
}

// An interruption that is longer than the grace ends nothing: a client that connects during it waits.
func TestALongInterruption(t *testing.T) {
	var g *gate
	p := start(t, behindAGate(t, &g), func(o *options) {
		o.client.PeerGrace, o.server.PeerGrace = 100*time.Millisecond, 100*time.Millisecond
		o.client.Reconnect, o.server.Reconnect = true, true
	})
	_, at := p.prepare("one", serve(t, echo))
	held := dial(t, at)
	asks(t, held, "before")
	g.cut(true)
	begun := dial(t, at)
	_, _ = io.WriteString(begun, "hello")
	<-time.After(time.Second)
	asks(t, held, "during the break")
	g.open()
	back := make([]byte, 5)
	if _, err := io.ReadFull(begun, back); err != nil || string(back) != "hello" {
		t.Fatalf("a stream that began during the break: %q, %v", back, err)
	}
}
