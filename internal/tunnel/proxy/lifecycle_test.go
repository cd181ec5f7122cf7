package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

func TestPrepareMayBeRepeated(t *testing.T) {
	p := start(t)
	first, at := p.prepare("one", serve(t, echo))
	request := &control.TunnelRequest{Name: "one", ServerPort: first.GetServerPort(), ClientProxyAddress: "127.0.0.1"}
	again, err := p.PrepareTunnel(t.Context(), request)
	if err != nil || again.GetTunnelRef().GetTunnelId() != first.GetTunnelRef().GetTunnelId() || again.GetClientProxyPort() != first.GetClientProxyPort() {
		t.Errorf("again: %v, %v", again, err)
	}
	// What is left open is the same as its default.
	request.ServerAddress = "localhost"
	if again, err := p.PrepareTunnel(t.Context(), request); err != nil || again.GetTunnelRef().GetTunnelId() != first.GetTunnelRef().GetTunnelId() {
		t.Errorf("with the default: %v, %v", again, err)
	}
	// Another name is another tunnel, even to the same server.
	request.Name = "two"
	two, err := p.PrepareTunnel(t.Context(), request)
	if err != nil || two.GetTunnelRef().GetTunnelId() == first.GetTunnelRef().GetTunnelId() || two.GetClientProxyPort() == first.GetClientProxyPort() {
		t.Fatalf("two: %v, %v", two, err)
	}
	if _, err := p.DeleteTunnel(t.Context(), two.GetTunnelRef()); err != nil {
		t.Fatal(err)
	}
	if err := once(at); err != nil {
		t.Errorf("the deletion of one tunnel ended another one: %v", err)
	}
	request.Name, request.ServerPort = "one", 1
	if _, err := p.PrepareTunnel(t.Context(), request); status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "one") {
		t.Errorf("another definition: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	p := start(t, func(o *options) { o.client.MaxTunnels = 1 })
	for _, c := range []struct {
		name    string
		request *control.TunnelRequest
		code    codes.Code
		tells   string
	}{
		{"no name", &control.TunnelRequest{ServerPort: 80}, codes.InvalidArgument, "name"},
		{"long name", &control.TunnelRequest{Name: strings.Repeat("x", 254), ServerPort: 80}, codes.InvalidArgument, "name"},
		{"no server port", &control.TunnelRequest{Name: "x"}, codes.InvalidArgument, "server_port"},
		{"server port too high", &control.TunnelRequest{Name: "x", ServerPort: 70000}, codes.InvalidArgument, "server_port"},
		{"negative client port", &control.TunnelRequest{Name: "x", ServerPort: 80, ClientProxyPort: -1}, codes.InvalidArgument, "client_proxy_port"},
		{"client port too high", &control.TunnelRequest{Name: "x", ServerPort: 80, ClientProxyPort: 65536}, codes.InvalidArgument, "client_proxy_port"},
		{"client port of control", &control.TunnelRequest{Name: "x", ServerPort: 80, ClientProxyPort: int32(p.client.ClientControlPort)}, codes.InvalidArgument, "client_proxy_port"},
		{"client port of data", &control.TunnelRequest{Name: "x", ServerPort: 80, ClientProxyPort: int32(p.client.ClientDataPort)}, codes.InvalidArgument, "client_proxy_port"},
		{"client address is a name", &control.TunnelRequest{Name: "x", ServerPort: 80, ClientProxyAddress: "example.com"}, codes.InvalidArgument, "client_proxy_address"},
		{"client address of another host", &control.TunnelRequest{Name: "x", ServerPort: 80, ClientProxyAddress: "192.0.2.99"}, codes.Internal, "192.0.2.99"},
		{"server is not allowed", &control.TunnelRequest{Name: "x", ServerPort: 80, ServerAddress: "192.0.2.1"}, codes.PermissionDenied, "192.0.2.1"},
		{"metadata of a cloud", &control.TunnelRequest{Name: "x", ServerPort: 80, ServerAddress: "169.254.169.254"}, codes.PermissionDenied, "link-local"},
		{"the kubelet", &control.TunnelRequest{Name: "x", ServerPort: 10250}, codes.PermissionDenied, "10250"},
		{"server is unknown", &control.TunnelRequest{Name: "x", ServerPort: 80, ServerAddress: "does-not-exist.invalid"}, codes.Internal, "does-not-exist.invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := p.PrepareTunnel(t.Context(), c.request)
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.tells) {
				t.Errorf("%v: want %s that tells of %s", err, c.code, c.tells)
			}
		})
	}
	if all := p.list().GetTunnels(); len(all) != 0 {
		t.Errorf("bad requests made tunnels: %v", all)
	}
	p.prepare("one", 80)
	if _, err := p.PrepareTunnel(t.Context(), &control.TunnelRequest{Name: "two", ServerPort: 80}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("too many: %v", err)
	}
	if _, err := p.DeleteTunnel(t.Context(), &control.TunnelRef{TunnelId: 99}); status.Code(err) != codes.NotFound {
		t.Errorf("delete what is not there: %v", err)
	}
	stream, err := p.NewStreamsConnection(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("the server proxy has streams to tell of: %v", err)
	}
}

// The port is free when DeleteTunnel returns, streams go on, and another tunnel can have it.
func TestATunnelIsRedefinedOnItsPort(t *testing.T) {
	p := start(t)
	upper := serve(t, func(c *net.TCPConn) {
		b := make([]byte, 100)
		n, _ := c.Read(b)
		_, _ = io.WriteString(c, strings.ToUpper(string(b[:n])))
	})
	spec, at := p.prepare("web", serve(t, echo))
	_, other := p.prepare("other", serve(t, echo))
	held, heldOther := dial(t, at), dial(t, other)
	asks(t, held, "before")
	asks(t, heldOther, "before")
	for round := range 20 {
		if _, err := p.DeleteTunnel(t.Context(), spec.GetTunnelRef()); err != nil {
			t.Fatal(err)
		}
		if c, err := net.Dial("tcp", at); err == nil {
			_ = c.Close()
			t.Fatalf("round %d: the port is still open", round)
		}
		var err error
		spec, err = p.PrepareTunnel(t.Context(), &control.TunnelRequest{
			Name: "web", ServerPort: int32(upper), ClientProxyAddress: "127.0.0.1", ClientProxyPort: spec.GetClientProxyPort(),
		})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	asks(t, held, "after")
	asks(t, heldOther, "after")
	c := dial(t, at)
	_, _ = io.WriteString(c, "new")
	if got, err := io.ReadAll(c); err != nil || string(got) != "NEW" {
		t.Errorf("%q, %v: want the new server's answer", got, err)
	}
	_ = c.Close()
	within(t, "that stream has ended", func() bool { return p.list().GetActiveStreams() == 2 })
	if all := p.list(); all.GetDeleted().GetStreams() != 1 || all.GetActiveStreams() != 2 || len(all.GetTunnels()) != 2 {
		t.Errorf("%v", all)
	}
	// What was counted stays counted when the last stream of a deleted tunnel ends.
	_ = held.Close()
	within(t, "the stream has ended", func() bool { return p.list().GetActiveStreams() == 1 })
	if got := p.list().GetDeleted().GetBytesToServer(); got != uint64(len("beforeafter")) {
		t.Errorf("%d bytes of the deleted tunnel", got)
	}
}

func TestClientsOfADeletedTunnelDoNotWait(t *testing.T) {
	p := start(t)
	spec, at := p.prepare("refuses", closedPort(t))
	c := dial(t, at)
	within(t, "the client waits", func() bool { return p.list().GetTunnels()[0].GetOpeningStreams() == 1 })
	if _, err := p.DeleteTunnel(t.Context(), spec.GetTunnelRef()); err != nil {
		t.Fatal(err)
	}
	isClosed(t, c)
}

func TestAllAddresses(t *testing.T) {
	p := start(t)
	spec, err := p.PrepareTunnel(t.Context(), &control.TunnelRequest{Name: "all", ServerPort: int32(serve(t, echo))})
	if err != nil {
		t.Fatal(err)
	}
	if len(spec.GetClientProxyAddresses()) == 0 || spec.GetClientProxyAddress() != "0.0.0.0" {
		t.Fatalf("%v", spec)
	}
	for _, address := range append(spec.GetClientProxyAddresses(), "127.0.0.1") {
		if err := once(Endpoint{Address: address, Port: int(spec.GetClientProxyPort())}.String()); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// The network of a cluster may have IPv6 alone: the default addresses are those of both families.
func TestBothFamilies(t *testing.T) {
	probe, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	_ = probe.Close()
	for _, address := range []string{"0.0.0.0", "::"} {
		t.Run(address, func(t *testing.T) {
			p := start(t, func(o *options) {
				o.client.Control.Address, o.client.Data.Address = address, address
				o.between = func(r Ready) (Endpoint, Endpoint) {
					return Endpoint{"::1", r.ClientControlPort}, Endpoint{"::1", r.ClientDataPort}
				}
			})
			// The readiness probe of the kubelet connects to the address of the pod.
			for _, ip := range []string{"127.0.0.1", "::1"} {
				for _, port := range []int{p.client.ClientControlPort, p.client.ClientDataPort} {
					_ = dial(t, Endpoint{ip, port}.String()).Close()
				}
			}
			for _, listening := range []string{"", "0.0.0.0", "::"} {
				spec, err := p.PrepareTunnel(t.Context(), &control.TunnelRequest{Name: "at " + listening, ServerPort: int32(serve(t, echo)), ClientProxyAddress: listening})
				if err != nil {
					t.Fatal(err)
				}
				for _, ip := range []string{"127.0.0.1", "::1"} {
					if err := once(Endpoint{ip, int(spec.GetClientProxyPort())}.String()); err != nil {
						t.Errorf("%q over %s: %v", listening, ip, err)
					}
				}
			}
		})
	}
	// One address is that address alone.
	p := start(t)
	spec, _ := p.prepare("one", serve(t, echo))
	if err := once(Endpoint{"::1", int(spec.GetClientProxyPort())}.String()); err == nil {
		t.Error("a tunnel at 127.0.0.1 listens at ::1, too")
	}
}

func TestTheEndOnPurpose(t *testing.T) {
	for name, end := range map[string]func(*pair) error{
		"a controller says so": func(p *pair) error {
			_, err := p.Shutdown(p.Context(), &control.ShutdownRequest{})
			return err
		},
		"the server proxy is asked": func(p *pair) error { return p.endServer() },
		"the client proxy is asked": func(p *pair) error { return p.endClient() },
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, func(o *options) { o.client.Drain, o.server.Drain = timeout, timeout })
			_, at := p.prepare("one", serve(t, echo))
			c := dial(t, at)
			asks(t, c, "before")
			var ends sync.WaitGroup
			ends.Go(func() {
				if err := end(p); err != nil {
					t.Errorf("it ended with %v", err)
				}
			})
			within(t, "no new streams", func() bool {
				late, err := net.Dial("tcp", at)
				if err == nil {
					_ = late.Close()
				}
				return err != nil
			})
			asks(t, c, "it drains: what runs continues")
			_ = c.Close()
			ends.Wait()
			if err := errors.Join(p.endServer(), p.endClient()); err != nil {
				t.Errorf("a proxy ended with %v", err)
			}
		})
	}
}

func TestStreamsThatDoNotEndAreCut(t *testing.T) {
	p := start(t)
	_, at := p.prepare("one", serve(t, echo))
	c := dial(t, at)
	asks(t, c, "before")
	if err := errors.Join(p.endServer(), p.endClient()); err != nil {
		t.Error(err)
	}
	isClosed(t, c)
}

// gate is a way to the client proxy that can be cut.
type gate struct {
	net.Listener
	mu    sync.Mutex
	to    string
	all   []net.Conn
	block bool
}

func newGate(t testing.TB, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: l, to: to}
	t.Cleanup(func() { _ = l.Close(); g.cut(true) })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			out, err := net.Dial("tcp", g.to)
			if err != nil || g.block {
				_ = in.Close()
				if err == nil {
					_ = out.Close()
				}
				g.mu.Unlock()
				continue
			}
			g.all = append(g.all, in, out)
			g.mu.Unlock()
			for from, to := range map[net.Conn]net.Conn{in: out, out: in} {
				go func() {
					// Without splice, which keeps pipes open for a while.
					_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
					_ = to.Close()
				}()
			}
		}
	}()
	return g
}

func (g *gate) cut(block bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.block = block
	for _, c := range g.all {
		_ = c.Close()
	}
	g.all = nil
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.block = false
}

func behindAGate(t testing.TB, g **gate) func(*options) {
	return func(o *options) {
		o.between = func(r Ready) (Endpoint, Endpoint) {
			*g = newGate(t, Endpoint{Address: "127.0.0.1", Port: r.ClientControlPort}.String())
			return Endpoint{Address: "127.0.0.1", Port: (*g).Addr().(*net.TCPAddr).Port}, Endpoint{Address: "127.0.0.1", Port: r.ClientDataPort}
		}
	}
}

// A break of the control connection breaks no stream, neither one that runs nor one that begins during the break.
func TestTheControlConnectionBreaks(t *testing.T) {
	var g *gate
	p := start(t, behindAGate(t, &g), func(o *options) { o.client.PeerGrace, o.server.PeerGrace = timeout, timeout })
	_, at := p.prepare("one", serve(t, echo))
	c := dial(t, at)
	asks(t, c, "before")
	for range 3 {
		g.cut(true)
		asks(t, c, "during the break")
		begun := dial(t, at)
		_, _ = io.WriteString(begun, "hello")
		g.open()
		back := make([]byte, 5)
		if _, err := io.ReadFull(begun, back); err != nil || string(back) != "hello" {
			t.Fatalf("a stream that began during the break: %q, %v", back, err)
		}
		_ = begun.Close()
		g.cut(false)
	}
	asks(t, c, "after")
	within(t, "calls work", func() bool {
		_, err := p.ListTunnels(t.Context(), &control.ListTunnelsRequest{})
		return err == nil
	})
}

func TestTheControlConnectionBreaksForGood(t *testing.T) {
	var g *gate
	p := start(t, behindAGate(t, &g), func(o *options) { o.client.PeerGrace, o.server.PeerGrace = 300*time.Millisecond, 300*time.Millisecond })
	_, at := p.prepare("one", serve(t, echo))
	c := dial(t, at)
	asks(t, c, "before")
	g.cut(true)
	isClosed(t, c)
	within(t, "both have ended", func() bool { return strings.Count(p.log.String(), " proxy ends") == 2 })
	for who, end := range map[string]func() error{"client": p.endClient, "server": p.endServer} {
		if err := end(); !errors.Is(err, ErrPeerGone) {
			t.Errorf("the %s proxy ended with %v", who, err)
		}
	}
}

// A client proxy belongs to its server proxy: another one is refused, and nothing breaks.
func TestASecondServerProxyIsRefused(t *testing.T) {
	p := start(t)
	_, at := p.prepare("one", serve(t, echo))
	err := RunServer(t.Context(), ServerOptions{
		Common: Common{
			Identity: identityOf(t, p.dirs[pki.ServerProxy]), MaxStreams: 1, PeerGrace: time.Second, Now: time.Now,
			Log: noLog(), Ready: func(Ready) { t.Error("it is ready") },
		},
		Control:        Endpoint{Address: "127.0.0.1"},
		ClientControl:  Endpoint{Address: "127.0.0.1", Port: p.client.ClientControlPort},
		ClientData:     Endpoint{Address: "127.0.0.1", Port: p.client.ClientDataPort},
		ConnectTimeout: timeout, DialTimeout: time.Second,
	})
	if !errors.Is(err, ErrNotStarted) || !strings.Contains(err.Error(), "another server proxy") {
		t.Errorf("it ended with %v", err)
	}
	if err := once(at); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBegin(t *testing.T) {
	countBefore(t)
	_, dirs := certificates(t, time.Now(), time.Hour)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	at := Endpoint{Address: "127.0.0.1", Port: taken.Addr().(*net.TCPAddr).Port}
	free := Endpoint{Address: "127.0.0.1"}
	common := Common{Identity: identityOf(t, dirs[pki.ServerProxy]), MaxStreams: 1, PeerGrace: time.Second, Now: time.Now, Log: noLog(), Ready: func(Ready) { t.Error("it is ready") }}
	for name, err := range map[string]error{
		"control of the client proxy": RunClient(t.Context(), ClientOptions{Common: common, Control: at, Data: free}),
		"data of the client proxy":    RunClient(t.Context(), ClientOptions{Common: common, Control: free, Data: at}),
		"control of the server proxy": RunServer(t.Context(), ServerOptions{Common: common, Control: at, ClientControl: at}),
		"no client proxy": RunServer(t.Context(), ServerOptions{
			Common: common, Control: free, ConnectTimeout: 300 * time.Millisecond,
			ClientControl: Endpoint{Address: "127.0.0.1", Port: closedPort(t)},
		}),
	} {
		if !errors.Is(err, ErrNotStarted) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// mute are name servers that say nothing of some names.
type mute struct{}

func (mute) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	if host == "silent.test" {
		<-ctx.Done()
		return nil, &net.DNSError{Err: ctx.Err().Error(), Name: host, IsTimeout: true}
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
}

// If no name server answers for a server's name, that tunnel fails before the caller's timeout, and other calls do not
// wait.
func TestNameServersThatDoNotAnswer(t *testing.T) {
	p := start(t, func(o *options) { o.server.Names = mute{} })
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := p.PrepareTunnel(ctx, &control.TunnelRequest{Name: "silent", ServerAddress: "silent.test", ServerPort: 80})
		failed <- err
	}()
	port := serve(t, echo)
	spec, err := p.PrepareTunnel(ctx, &control.TunnelRequest{Name: "known", ServerAddress: "known.test", ServerPort: int32(port), ClientProxyAddress: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := once(Endpoint{Address: "127.0.0.1", Port: int(spec.GetClientProxyPort())}.String()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-failed:
		t.Fatalf("%v, while the other tunnel was prepared: it waited", err)
	default:
	}
	if err := <-failed; status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "silent.test") || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
	if all := p.list().GetTunnels(); len(all) != 1 {
		t.Errorf("%d tunnels", len(all))
	}
}
