package proxy

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// hostile is a client proxy with a valid certificate that answers what a test wants.
type hostile struct {
	control.UnimplementedTunnelControlServer
	testing.TB
	*control.Client // of the controller

	mu      sync.Mutex
	prepare func(*control.TunnelRequest) (*control.TunnelSpec, error)
	listed  []*control.TunnelState
	deleted []uint32
	refuses bool // to delete

	wanted  chan *control.NewStream
	results chan *control.NewStreamResult
}

func (h *hostile) PrepareTunnel(_ context.Context, asked *control.TunnelRequest) (*control.TunnelSpec, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.prepare(asked)
}

func (h *hostile) ListTunnels(context.Context, *control.ListTunnelsRequest) (*control.ListTunnelsResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &control.ListTunnelsResponse{Tunnels: slices.Clone(h.listed)}, nil
}

func (h *hostile) DeleteTunnel(_ context.Context, ref *control.TunnelRef) (*control.DeleteTunnelResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuses {
		return nil, status.Error(codes.Internal, "no")
	}
	h.deleted = append(h.deleted, ref.GetTunnelId())
	return &control.DeleteTunnelResponse{}, nil
}

func (h *hostile) NewStreamsConnection(stream grpc.BidiStreamingServer[control.NewStreamResult, control.NewStream]) error {
	if err := stream.SendHeader(metadata.Pairs(instanceKey, "hostile")); err != nil {
		return err
	}
	go func() {
		for {
			result, err := stream.Recv()
			if err != nil {
				return
			}
			h.results <- result
		}
	}()
	for {
		select {
		case wanted := <-h.wanted:
			if err := stream.Send(wanted); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// startHostile starts a server proxy with a hostile client proxy.
func startHostile(t *testing.T) *hostile {
	countBefore(t)
	_, dirs := certificates(t, time.Now(), time.Hour)
	h := &hostile{TB: t, wanted: make(chan *control.NewStream), results: make(chan *control.NewStreamResult, 100)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	grpcServer := newControlServer(identityOf(t, dirs[pki.ClientProxy]), pki.ServerProxy, h)
	go func() { _ = grpcServer.Serve(limited(l, "control", slog.New(slog.DiscardHandler))) }()
	t.Cleanup(grpcServer.Stop)
	log := &testLog{}
	ready, _ := run(t, func(ctx context.Context, ready func(Ready)) error {
		return RunServer(ctx, ServerOptions{
			Common: Common{
				Identity: identityOf(t, dirs[pki.ServerProxy]), MaxStreams: 100, PeerGrace: timeout, Drain: 100 * time.Millisecond,
				Log: slog.New(slog.NewJSONHandler(log, nil)), Ready: ready, Now: time.Now,
			},
			Control:       Endpoint{Address: "127.0.0.1"},
			ClientControl: Endpoint{Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port},
			// It accepts no data connection: the tests look at what is dialled before that.
			ClientData: Endpoint{Address: "127.0.0.1", Port: 1},
			Servers:    loopbackRules(), Names: net.DefaultResolver, ConnectTimeout: timeout, DialTimeout: time.Minute,
		})
	})
	h.Client, err = control.Dial(Endpoint{Address: "127.0.0.1", Port: ready.ServerControlPort}.String(), identityOf(t, dirs[pki.Controller]), pki.ServerProxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func (h *hostile) does(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// asksFor prepares a tunnel through the server proxy.
func (h *hostile) asksFor(name string, port int) (*control.TunnelSpec, error) {
	return h.Client.PrepareTunnel(h.Context(), &control.TunnelRequest{Name: name, ServerPort: int32(port)})
}

// opens has the server proxy make a stream of a tunnel.
func (h *hostile) opens(tunnel uint32, stream uint64) {
	h.Helper()
	select {
	case h.wanted <- &control.NewStream{StreamRef: &control.StreamRef{TunnelId: tunnel, StreamId: stream}, Token: make([]byte, tokenSize)}:
	case <-time.After(timeout):
		h.Fatal("the server proxy is not connected")
	}
}

// isNoTunnel expects the server proxy to make no stream because the tunnel does not exist.
func (h *hostile) isNoTunnel(tunnel uint32, stream uint64) {
	h.Helper()
	h.opens(tunnel, stream)
	select {
	case result := <-h.results:
		if got := result.GetFailure().GetError(); got != control.StreamError_STREAM_ERROR_NONEXISTENT_TUNNEL {
			h.Errorf("a stream of tunnel %d: %v: want it not to exist", tunnel, result)
		}
	case <-time.After(timeout):
		h.Errorf("the server proxy makes a stream of tunnel %d", tunnel)
	}
}

// counted is a server that tells of each connection.
func counted(t testing.TB) (port int, dialled chan struct{}) {
	dialled = make(chan struct{}, 100)
	return serve(t, func(*net.TCPConn) { dialled <- struct{}{} }), dialled
}

func answer(id uint32, asked *control.TunnelRequest, serverPort int) *control.TunnelSpec {
	return &control.TunnelSpec{
		TunnelRef: &control.TunnelRef{TunnelId: id}, Name: asked.GetName(), ServerAddress: asked.GetServerAddress(), ServerPort: int32(serverPort),
		ClientProxyAddress: asked.GetClientProxyAddress(), ClientProxyAddresses: []string{"10.0.0.9"}, ClientProxyPort: 8080,
	}
}

// Where a tunnel leads is what the controller asked for, not what the client proxy answers.
func TestAHostileClientProxyDoesNotChooseTheServer(t *testing.T) {
	h := startHostile(t)
	right, reached := counted(t)
	victim, stolen := counted(t)
	h.does(func() {
		h.prepare = func(asked *control.TunnelRequest) (*control.TunnelSpec, error) {
			spec := answer(7, asked, victim)
			spec.Name, spec.ServerAddress = "another", "127.0.0.2"
			return spec, nil
		}
	})
	spec, err := h.asksFor("web", right)
	if err != nil || spec.GetServerPort() != int32(right) || spec.GetServerAddress() != "localhost" || spec.GetName() != "web" {
		t.Fatalf("%v, %v: want what was asked for", spec, err)
	}
	if spec.GetClientProxyPort() != 8080 || !slices.Equal(spec.GetClientProxyAddresses(), []string{"10.0.0.9"}) {
		t.Errorf("%v: want the port and the addresses of the client proxy", spec)
	}
	h.opens(7, 1)
	select {
	case <-reached:
	case <-stolen:
		t.Error("the server proxy dials the port that the client proxy chose")
	case <-time.After(timeout):
		t.Error("the server was not dialled")
	}
	// The list tells the own description too.
	h.does(func() {
		h.listed = []*control.TunnelState{{Spec: answer(7, &control.TunnelRequest{Name: "another"}, victim)}}
	})
	all, err := h.Client.ListTunnels(t.Context(), &control.ListTunnelsRequest{})
	if err != nil || len(all.GetTunnels()) != 1 || all.GetTunnels()[0].GetSpec().GetServerPort() != int32(right) {
		t.Errorf("%v, %v: want the tunnel as it was asked for", all, err)
	}
	h.opens(7, 2)
	select {
	case <-reached:
	case <-stolen:
		t.Error("the server proxy dials the port that the client proxy lists")
	case <-time.After(timeout):
		t.Error("the server was not dialled after the list")
	}
}

// A tunnel that was not asked for does not become one by being listed.
func TestAHostileClientProxyAddsNoTunnels(t *testing.T) {
	h := startHostile(t)
	victim, _ := counted(t)
	h.does(func() {
		h.listed = []*control.TunnelState{{Spec: answer(4711, &control.TunnelRequest{Name: "mine", ServerAddress: "localhost"}, victim)}}
	})
	all, err := h.Client.ListTunnels(t.Context(), &control.ListTunnelsRequest{})
	if err != nil || len(all.GetTunnels()) != 0 {
		t.Errorf("%v, %v: want no tunnel", all, err)
	}
	h.isNoTunnel(4711, 1)
	h.does(func() {
		if !slices.Equal(h.deleted, []uint32{4711}) {
			t.Errorf("%v were deleted at the client proxy: want the tunnel that was not asked for", h.deleted)
		}
	})
}

// A client proxy cannot keep a tunnel that the controller deletes or no longer sees.
func TestAHostileClientProxyKeepsNoTunnels(t *testing.T) {
	h := startHostile(t)
	right, _ := counted(t)
	h.does(func() {
		h.refuses = true
		h.prepare = func(asked *control.TunnelRequest) (*control.TunnelSpec, error) { return answer(7, asked, right), nil }
	})
	if _, err := h.asksFor("web", right); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Client.DeleteTunnel(t.Context(), &control.TunnelRef{TunnelId: 7}); status.Code(err) != codes.Internal {
		t.Errorf("%v: want an error with what the client proxy answers", err)
	}
	h.isNoTunnel(7, 1)
	// It lists none, so that the controller deletes none.
	if _, err := h.asksFor("web", right); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Client.ListTunnels(t.Context(), &control.ListTunnelsRequest{}); err != nil {
		t.Fatal(err)
	}
	h.isNoTunnel(7, 2)
}

// Answers that no client proxy gives are refused.
func TestAHostileClientProxyAnswersWrongly(t *testing.T) {
	h := startHostile(t)
	right, _ := counted(t)
	h.does(func() {
		h.prepare = func(asked *control.TunnelRequest) (*control.TunnelSpec, error) { return answer(7, asked, right), nil }
	})
	if _, err := h.asksFor("first", right); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*control.TunnelSpec){
		"the ID of another tunnel": func(s *control.TunnelSpec) { s.TunnelRef.TunnelId = 7 },
		"no ID":                    func(s *control.TunnelSpec) { s.TunnelRef = nil },
		"no port":                  func(s *control.TunnelSpec) { s.ClientProxyPort = 0 },
		"a port beyond all":        func(s *control.TunnelSpec) { s.ClientProxyPort = 65536 },
		"a name as address":        func(s *control.TunnelSpec) { s.ClientProxyAddresses = []string{"evil.example"} },
		"too many addresses":       func(s *control.TunnelSpec) { s.ClientProxyAddresses = make([]string, 1000) },
	} {
		h.does(func() {
			h.prepare = func(asked *control.TunnelRequest) (*control.TunnelSpec, error) {
				spec := answer(8, asked, right)
				change(spec)
				return spec, nil
			}
		})
		if spec, err := h.asksFor("second", right); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v, %v", name, spec, err)
		}
	}
	h.isNoTunnel(8, 1)
}

// A tunnel whose answer was lost is found again in the list, if it is the one that was asked for.
func TestLostAnswers(t *testing.T) {
	h := startHostile(t)
	right, reached := counted(t)
	victim, stolen := counted(t)
	lost := func(*control.TunnelRequest) (*control.TunnelSpec, error) {
		return nil, status.Error(codes.Unavailable, "lost")
	}
	list := func(listed ...*control.TunnelSpec) int {
		h.does(func() {
			h.listed = nil
			for _, spec := range listed {
				h.listed = append(h.listed, &control.TunnelState{Spec: spec})
			}
		})
		all, err := h.Client.ListTunnels(t.Context(), &control.ListTunnelsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(all.GetTunnels())
	}
	asked := &control.TunnelRequest{Name: "web", ServerAddress: "localhost", ClientProxyAddress: "0.0.0.0"}

	h.does(func() { h.prepare = lost })
	if _, err := h.asksFor("web", right); err == nil {
		t.Fatal("it was prepared")
	}
	if n := list(answer(5, asked, victim)); n != 0 {
		t.Errorf("%d tunnels: want none, because the one that is listed was not asked for", n)
	}
	h.isNoTunnel(5, 1)

	if _, err := h.asksFor("web", right); err == nil {
		t.Fatal("it was prepared")
	}
	if n := list(answer(6, asked, right)); n != 1 {
		t.Fatalf("%d tunnels: want the one whose answer was lost", n)
	}
	h.opens(6, 2)
	select {
	case <-reached:
	case <-stolen:
		t.Error("another server was dialled")
	case <-time.After(timeout):
		t.Error("the server was not dialled")
	}
	// A refusal is an answer.
	h.does(func() {
		h.prepare = func(*control.TunnelRequest) (*control.TunnelSpec, error) {
			return nil, status.Error(codes.Internal, "no")
		}
	})
	if _, err := h.asksFor("other", right); err == nil {
		t.Fatal("it was prepared")
	}
	asked.Name = "other"
	if n := list(answer(9, asked, right)); n != 0 {
		t.Errorf("%d tunnels: want none, because the client proxy refused it", n)
	}
	h.isNoTunnel(9, 3)
}
