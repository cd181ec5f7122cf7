package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bergctf/berg-operator/internal/kit/allowlist"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/proxy/dataconn"
)

const (
	// An attempt to dial takes at most attemptTimeout. The delay after it doubles from minDialDelay to maxDialDelay.
	attemptTimeout = 5 * time.Second
	minDialDelay   = 200 * time.Millisecond
	maxDialDelay   = 10 * time.Second
	// The delay between attempts to open the control connection doubles too.
	minSessionDelay = 100 * time.Millisecond
	maxSessionDelay = time.Second
	// maxAddresses is the maximum number of addresses of one tunnel that the client proxy may report.
	maxAddresses = 64
)

// streamKey identifies a stream that is being made. Each instance of a client proxy begins to count again.
type streamKey struct {
	instance string
	id       uint64
}

// server is a server proxy.
type server struct {
	control.UnimplementedTunnelControlServer
	ServerOptions
	instance string
	streams  *streams
	idle     idlePool
	peer     *control.Client

	from sender[*control.NewStreamResult]

	// calls is held while a call is passed on, so that both proxies have the same tunnels.
	calls   sync.Mutex
	tunnels sync.Map // tunnel ID to *control.TunnelSpec, as adopt made it
	// unanswered are the requests that the client proxy may or may not have received, by name. It is used with calls held.
	unanswered map[string]*control.TunnelRequest

	// reached holds the last check of each tunnel's server, by tunnel ID.
	reached sync.Map // uint32 to reach

	mu       sync.Mutex
	openings map[streamKey]context.CancelFunc
	client   string // the instance of the client proxy; empty while there is no control connection

	ending   chan struct{}
	endOnce  sync.Once
	endError error
}

// RunServer runs a server proxy until the context ends, Shutdown is called, or the client proxy ends. It returns nil if
// one of both was asked to end, and otherwise an error, which may be ErrPeerGone or ErrNotStarted.
func RunServer(ctx context.Context, options ServerOptions) error {
	s := &server{
		ServerOptions: options,
		instance:      newInstance(),
		streams:       newStreams(options.MaxStreams, 0),
		openings:      map[streamKey]context.CancelFunc{},
		unanswered:    map[string]*control.TunnelRequest{},
		ending:        make(chan struct{}),
	}
	// It listens before it connects, so that a port that is in use is reported immediately.
	listener, bound, err := listen(options.Control)
	if err != nil {
		return fmt.Errorf("%w: control: %w", ErrNotStarted, err)
	}
	s.Control = bound
	if s.peer, err = control.Dial(s.ClientControl.String(), s.Identity, pki.ClientProxy); err != nil {
		_ = listener.Close()
		return fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	// Streams and the session outlive the context, to be drained.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	grpcServer := newControlServer(s.Identity, pki.Controller, s)
	connected := make(chan string, 1)
	var background sync.WaitGroup
	background.Go(func() { s.finish(s.keepSession(running, connected)) })
	if s.CheckInterval > 0 {
		background.Go(func() { s.checkServers(running) })
	}

	reached := false
	select {
	case peer := <-connected:
		reached = true
		background.Go(func() { s.finish(grpcServer.Serve(limited(listener, "control", s.Log))) })
		s.Log.Info("the server proxy is connected", "control", bound.String(), "client", s.ClientControl.String(), "instance", s.instance, "peer", peer)
		s.Ready(Ready{
			Role: "server", Instance: s.instance, PID: os.Getpid(), Version: s.Version,
			ServerControlAddress: bound.Address, ServerControlPort: bound.Port,
			ClientControlAddress: s.ClientControl.Address, ClientControlPort: s.ClientControl.Port,
			ClientDataAddress: s.ClientData.Address, ClientDataPort: s.ClientData.Port,
		})
	case <-ctx.Done():
		s.finish(nil)
	case <-s.ending:
	}
	select {
	case <-ctx.Done():
		s.finish(nil)
	case <-s.ending:
	}
	<-s.ending

	// Only a proxy that ends on purpose ends the other one. After a failure the other one may have a new server proxy already.
	if s.endError == nil && reached {
		s.shutDownPeer(running)
	}
	s.cancelOpenings()
	drain, cancel := context.WithTimeout(running, s.Drain)
	defer cancel()
	if s.endError != nil {
		cancel()
	}
	if cut := s.streams.drain(drain); cut > 0 {
		s.Log.Warn("streams were cut at the end", "streams", cut)
	}
	stop()
	// The pool is closed after the drain: streams that end until then put their connections into it.
	s.idle.close()
	_ = listener.Close()
	stopServer(grpcServer)
	background.Wait()
	_ = s.peer.Close()
	s.Log.Info("the server proxy ends")
	return s.endError
}

func (s *server) finish(err error) {
	s.endOnce.Do(func() {
		s.endError = err
		close(s.ending)
	})
}

func (s *server) isEnding() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}

// shutDownPeer has the client proxy end too.
func (s *server) shutDownPeer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(withInstance(ctx, s.instance), callTimeout)
	defer cancel()
	if _, err := s.peer.Shutdown(ctx, &control.ShutdownRequest{}); err != nil {
		s.Log.Debug("shutting down the client proxy failed", "error", err)
	}
}

// keepSession keeps a control connection, and opens another one when it breaks. It returns nil when the client proxy has
// ended on purpose, unless it waits for another one. It never returns an error that Reconnect could mend. Each wait is bounded by
// maxSessionDelay, so a client proxy that is back is found within a second.
func (s *server) keepSession(ctx context.Context, connected chan<- string) error {
	var peer string // the client proxy's instance; empty before the first connection
	logged := codes.OK
	deadline := time.Now().Add(s.ConnectTimeout)
	wait := minSessionDelay
	var reason error // the last one that is not a timeout
	for {
		known, err := s.session(ctx, deadline, peer, func(instance string) {
			if peer == "" {
				connected <- instance
			}
			peer, wait, logged = instance, minSessionDelay, codes.OK
		})
		if code := status.Code(err); reason == nil || (code != codes.Canceled && !errors.Is(err, context.DeadlineExceeded)) {
			reason = err
		}
		switch {
		case ctx.Err() != nil || s.isEnding():
			return nil //nolint:nilerr // during a shutdown the connection breaks
		case err == nil && !s.Reconnect:
			return nil
		case peer == "":
			if refused := !s.Reconnect && status.Code(err) == codes.FailedPrecondition; refused || !time.Now().Before(deadline) {
				return fmt.Errorf("%w: reach the client proxy at %s: %w", ErrNotStarted, s.ClientControl, reason)
			}
		case s.Reconnect:
			if code := status.Code(err); known || code != logged {
				s.Log.Warn("the control connection is lost: trying to connect again", "error", err)
				logged = code
			}
			deadline = time.Now().Add(attemptTimeout)
		default:
			if deadline, err = s.lost(known, err, reason, deadline); err != nil {
				return err
			}
		}
		if !sleep(ctx, wait) {
			return nil
		}
		wait = min(2*wait, maxSessionDelay)
	}
}

// lost returns until when the connection to a client proxy that broke may be restored, or the error that says that this
// time is over. err is the error of the last attempt, reason the last error that is not a timeout, and deadline the
// present deadline.
func (s *server) lost(known bool, err, reason error, deadline time.Time) (time.Time, error) {
	switch {
	case errors.Is(err, ErrPeerGone):
		return deadline, err
	case status.Code(err) == codes.FailedPrecondition:
		return deadline, fmt.Errorf("%w: %w", ErrPeerGone, err)
	case known:
		s.Log.Warn("the control connection is lost", "error", err, "grace", s.PeerGrace.String())
		return time.Now().Add(s.PeerGrace), nil
	case !time.Now().Before(deadline):
		return deadline, fmt.Errorf("%w: the client proxy could not be reached within %s: %w", ErrPeerGone, s.PeerGrace, reason)
	default:
		return deadline, nil
	}
}

// session is one control connection. known: the client proxy has answered on it.
func (s *server) session(ctx context.Context, deadline time.Time, expected string, connected func(instance string)) (known bool, err error) {
	ctx, cancel := context.WithCancel(withInstance(ctx, s.instance))
	defer cancel()
	// The deadline is for connecting only.
	timeout := time.AfterFunc(time.Until(deadline), cancel)
	defer timeout.Stop()
	stream, err := s.peer.NewStreamsConnection(ctx)
	if err != nil {
		return false, err
	}
	header, err := stream.Header()
	if err == nil && len(header.Get(instanceKey)) == 0 {
		_, err = stream.Recv() // it says why there is no header
	}
	if err != nil {
		return false, err
	}
	if !timeout.Stop() {
		return false, context.DeadlineExceeded
	}
	instance := senderInstance(header)
	if expected != "" && instance != expected {
		if !s.Reconnect {
			return true, fmt.Errorf("%w: another client proxy has replaced it", ErrPeerGone)
		}
		s.cancelOpenings()
		// The tunnels are prepared before the session counts as connected: until then calls of controllers are refused.
		if err := s.restore(ctx); err != nil {
			return false, fmt.Errorf("prepare the tunnels again: %w", err)
		}
		s.Log.Info("the tunnels are prepared at another client proxy", "peer", instance)
	}
	s.setClient(instance)
	defer s.setClient("")
	s.from.use(stream)
	defer s.from.drop(stream)
	connected(instance)
	for {
		wanted, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return true, err
		}
		s.open(context.WithoutCancel(ctx), instance, wanted)
	}
}

func (s *server) setClient(instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = instance
}

// restore prepares all tunnels at a client proxy that has replaced the former one. It forgets a tunnel that the client proxy
// refuses, so that a controller sees that it is missing.
func (s *server) restore(ctx context.Context) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	var former []*control.TunnelSpec
	s.tunnels.Range(func(_, t any) bool {
		former = append(former, t.(*control.TunnelSpec))
		return true
	})
	slices.SortFunc(former, func(a, b *control.TunnelSpec) int {
		return cmp.Compare(a.GetTunnelRef().GetTunnelId(), b.GetTunnelRef().GetTunnelId())
	})
	// A call may have reached the other client proxy before this.
	list, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	present, err := s.peer.ListTunnels(list, &control.ListTunnelsRequest{})
	if err != nil {
		return err
	}
	for _, t := range present.GetTunnels() {
		if _, err := s.peer.DeleteTunnel(list, t.GetSpec().GetTunnelRef()); err != nil && status.Code(err) != codes.NotFound {
			return err
		}
	}
	made := map[uint32]*control.TunnelSpec{}
	for _, t := range former {
		// The same port as before, for clients that know it.
		request := &control.TunnelRequest{
			Name: t.GetName(), ServerAddress: t.GetServerAddress(), ServerPort: t.GetServerPort(),
			ClientProxyAddress: t.GetClientProxyAddress(), ClientProxyPort: cmp.Or(t.GetRequestedClientProxyPort(), t.GetClientProxyPort()),
		}
		answered, err := s.prepareAtPeer(ctx, request)
		if err != nil && isUnanswered(err) {
			return err // all again, with the next connection
		}
		var spec *control.TunnelSpec
		if err == nil {
			spec, err = described(request, answered)
		}
		if err == nil && made[spec.GetTunnelRef().GetTunnelId()] != nil {
			err = errors.New("the client proxy answered with the ID of another tunnel")
		}
		if err != nil {
			s.Log.Warn("a tunnel could not be prepared again", "tunnel", t.GetName(), "error", err)
			continue
		}
		spec.RequestedClientProxyPort = t.GetRequestedClientProxyPort()
		made[spec.GetTunnelRef().GetTunnelId()] = spec
	}
	// Former IDs are dropped together and after all calls: if one of them fails, the next connection finds the list as it was.
	s.keepOnly(func(uint32, *control.TunnelSpec) bool { return false })
	clear(s.unanswered)
	for id, spec := range made {
		s.tunnels.Store(id, spec)
	}
	return nil
}

// isConnected returns a gRPC status if no call may be passed on: a client proxy that has replaced the former one has no tunnels
// before restore.
func (s *server) isConnected() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Reconnect && s.client == "" {
		return status.Error(codes.Unavailable, "the server proxy is not connected to the client proxy")
	}
	return nil
}

func (s *server) prepareAtPeer(ctx context.Context, request *control.TunnelRequest) (*control.TunnelSpec, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.peer.PrepareTunnel(ctx, request)
}

// open starts to make a stream, or cancels it if the client proxy says so.
func (s *server) open(ctx context.Context, instance string, wanted *control.NewStream) {
	id := streamKey{instance, wanted.GetStreamRef().GetStreamId()}
	s.mu.Lock()
	defer s.mu.Unlock()
	giveUp, present := s.openings[id]
	switch {
	case wanted.GetCancelled():
		if present {
			giveUp()
		}
	case present || s.isEnding(): // present: the client proxy asks again after the control connection broke
	default:
		// The opening is recorded before its goroutine starts: a repeated request or a cancellation then finds it,
		// whenever it arrives.
		ctx, cancel := context.WithTimeout(ctx, s.DialTimeout)
		s.openings[id] = cancel
		go func() {
			plain, data, reason, err := s.make(ctx, wanted)
			cancel()
			// The opening ends before the stream runs, so that the client proxy can ask again if the stream is cut.
			s.mu.Lock()
			delete(s.openings, id)
			s.mu.Unlock()
			if err != nil {
				s.Log.Debug("a stream could not be made", "stream", id.id, "tunnel", s.name(wanted), "reason", reason.String(), "error", err)
				s.fail(instance, wanted, &control.StreamFailure{Error: reason, Message: err.Error()})
				return
			}
			// A new goroutine does not keep the large stack of the handshake.
			go s.run(instance, wanted, plain, data)
		}()
	}
}

func (s *server) cancelOpenings() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.openings {
		cancel()
	}
}

// name returns the name of a stream's tunnel.
func (s *server) name(wanted *control.NewStream) string {
	if spec, ok := s.tunnels.Load(wanted.GetStreamRef().GetTunnelId()); ok {
		return spec.(*control.TunnelSpec).GetName()
	}
	return ""
}

// make makes both connections of a stream.
func (s *server) make(ctx context.Context, wanted *control.NewStream) (plain *net.TCPConn, data *pooledConn, _ control.StreamError, _ error) {
	found, ok := s.tunnels.Load(wanted.GetStreamRef().GetTunnelId())
	if !ok {
		return nil, nil, control.StreamError_STREAM_ERROR_NONEXISTENT_TUNNEL, fmt.Errorf("tunnel %d does not exist", wanted.GetStreamRef().GetTunnelId())
	}
	spec := found.(*control.TunnelSpec)
	if len(wanted.GetToken()) != tokenSize {
		return nil, nil, control.StreamError_STREAM_ERROR_UNSPECIFIED, errors.New("the client proxy sent no token")
	}
	if !s.streams.reserve() {
		return nil, nil, control.StreamError_STREAM_ERROR_LIMIT, errors.New("the server proxy has reached its limit of streams, or is shutting down")
	}
	// The server is dialled before the data connection: a stream to a server that does not answer never uses a
	// connection between the proxies.
	plain, err := s.dialServer(ctx, spec)
	if err != nil {
		s.streams.release()
		if errors.Is(err, allowlist.ErrRefused) {
			return nil, nil, control.StreamError_STREAM_ERROR_FORBIDDEN, err
		}
		return nil, nil, control.StreamError_STREAM_ERROR_SERVER_UNAVAILABLE, err
	}
	data, err = s.dialData(ctx, wanted)
	if err != nil {
		_ = plain.Close()
		s.streams.release()
		return nil, nil, control.StreamError_STREAM_ERROR_DATA_CONNECTION_FAILED, err
	}
	return plain, data, 0, nil
}

// run runs a stream.
func (s *server) run(instance string, wanted *control.NewStream, plain *net.TCPConn, data *pooledConn) {
	reused := !data.idle.IsZero()
	// Only the client proxy counts bytes of tunnels; these counters are dropped.
	if s.streams.run(&stream{plain: plain, data: data.Conn, out: new(atomic.Uint64), in: new(atomic.Uint64)}) == reusable {
		s.idle.put(data)
		return
	}
	// The data connection may have broken before the client proxy had the stream: then the client must not wait. If the
	// stream had started, the client proxy ignores this.
	s.fail(instance, wanted, &control.StreamFailure{
		Error: control.StreamError_STREAM_ERROR_DATA_CONNECTION_FAILED, Message: dataconn.ErrCut.Error(), Retry: reused,
	})
	s.idle.discard(data)
}

// fail reports to the client proxy that a stream cannot be made, unless another one has replaced it.
func (s *server) fail(instance string, wanted *control.NewStream, failure *control.StreamFailure) {
	s.mu.Lock()
	current := s.client == instance
	s.mu.Unlock()
	if !current {
		return
	}
	_ = s.from.send(&control.NewStreamResult{StreamRef: wanted.GetStreamRef(), Failure: failure})
}

// dialServer dials the server of a tunnel until it answers or the context ends.
func (s *server) dialServer(ctx context.Context, spec *control.TunnelSpec) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: attemptTimeout}
	return persist(ctx, func() (*net.TCPConn, error) { return s.dialOnce(ctx, &dialer, spec) })
}

// dialOnce dials the server of a tunnel, and notes whether that was reached. The addresses of a name may change, and they must be allowed
// each time. The name is resolved for each connection and the allowed addresses are dialled, never the name itself: its answer
// may change between the check and the connection.
func (s *server) dialOnce(ctx context.Context, dialer *net.Dialer, spec *control.TunnelSpec) (connection *net.TCPConn, err error) {
	defer func() {
		if err == nil || !errors.Is(ctx.Err(), context.Canceled) {
			s.note(spec, err) // a client that has disconnected says nothing of the server
		}
	}()
	port := int(spec.GetServerPort())
	addresses, err := s.Servers.Resolve(ctx, s.Names, spec.GetServerAddress(), port)
	if err != nil {
		return nil, err
	}
	for _, address := range addresses {
		if connection, err = dialTCP(ctx, dialer, netip.AddrPortFrom(address, uint16(port)).String()); err == nil {
			return connection, nil
		}
	}
	return nil, err
}

// dialData takes an idle data connection, unless the stream needs a new one, or makes one, and sends the preamble of the stream.
func (s *server) dialData(ctx context.Context, wanted *control.NewStream) (*pooledConn, error) {
	ref := wanted.GetStreamRef()
	p := newPreamble(ref.GetTunnelId(), ref.GetStreamId(), wanted.GetToken())
	if !wanted.GetFresh() {
		if idle := s.idle.get(s.Identity.Dial(pki.ClientProxy, DataProtocol)); idle != nil {
			if err := idle.Send(p[:]); err == nil {
				return idle, nil
			}
			// The peer may have closed it since Quiet. Nothing of the stream was sent, so a new connection takes it.
			_ = idle.Close()
		}
	}
	dialer := net.Dialer{Timeout: attemptTimeout}
	return persist(ctx, func() (*pooledConn, error) {
		connection, err := dialTCP(ctx, &dialer, s.ClientData.String())
		if err != nil {
			return nil, err
		}
		// The deadline is for the handshake and the preamble. The stream has none.
		_ = connection.SetDeadline(time.Now().Add(attemptTimeout))
		config := s.Identity.Dial(pki.ClientProxy, DataProtocol)
		data, err := dataconn.Dial(connection, config)
		if err == nil {
			err = data.Send(p[:])
		}
		if err != nil {
			_ = connection.Close()
			return nil, err
		}
		_ = connection.SetDeadline(time.Time{})
		return &pooledConn{Conn: data, config: config, created: time.Now()}, nil
	})
}

func dialTCP(ctx context.Context, dialer *net.Dialer, address string) (*net.TCPConn, error) {
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return connection.(*net.TCPConn), nil
}

// persist tries until something works, is refused, or the context ends. The error is the last one.
func persist[T any](ctx context.Context, try func() (T, error)) (T, error) {
	wait := minDialDelay
	for {
		made, err := try()
		if err == nil || errors.Is(err, allowlist.ErrRefused) || ctx.Err() != nil {
			return made, err
		}
		if !sleep(ctx, wait) {
			return made, err
		}
		wait = min(2*wait, maxDialDelay)
	}
}

// Shutdown ends both proxies.
func (s *server) Shutdown(context.Context, *control.ShutdownRequest) (*control.ShutdownResponse, error) {
	s.finish(nil)
	return &control.ShutdownResponse{}, nil
}

// NewStreamsConnection is for client proxies only.
func (s *server) NewStreamsConnection(grpc.BidiStreamingServer[control.NewStreamResult, control.NewStream]) error {
	return status.Error(codes.Unimplemented, "this is the server proxy, which reports no streams")
}

// PrepareTunnel makes a tunnel ready.
func (s *server) PrepareTunnel(ctx context.Context, asked *control.TunnelRequest) (*control.TunnelSpec, error) {
	request, err := normalized(asked)
	if err != nil {
		return nil, err
	}
	if err := s.allowed(ctx, request.GetServerAddress(), int(request.GetServerPort())); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.isEnding() {
		return nil, status.Error(codes.FailedPrecondition, "the server proxy is shutting down")
	}
	if err := s.isConnected(); err != nil {
		return nil, err
	}
	answered, err := s.peer.PrepareTunnel(ctx, request)
	if err != nil {
		if isUnanswered(err) {
			// ListTunnels later finds the tunnel at the client proxy and adopts it, or deletes it there.
			s.unanswered[request.GetName()] = request
		}
		return nil, err
	}
	delete(s.unanswered, request.GetName())
	spec, err := s.adopt(request, answered)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	s.Log.Info("a tunnel is ready", "tunnel", spec.GetName(), "id", spec.GetTunnelRef().GetTunnelId(),
		"server", net.JoinHostPort(spec.GetServerAddress(), strconv.Itoa(int(spec.GetServerPort()))))
	return spec, nil
}

// isUnanswered reports whether a call may have been carried out although it failed.
func isUnanswered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return true
	}
	return false
}

// adopt stores the tunnel of a request, in place of an earlier one of its name. The client proxy is not trusted: it may be
// in the hands of a container of its network. Only ID, addresses and port are taken from its answer; the destination of
// the tunnel comes from the controller's request.
func (s *server) adopt(request *control.TunnelRequest, answered *control.TunnelSpec) (*control.TunnelSpec, error) {
	spec, err := described(request, answered)
	if err != nil {
		return nil, err
	}
	id := spec.GetTunnelRef().GetTunnelId()
	if used, taken := s.tunnels.Load(id); taken && used.(*control.TunnelSpec).GetName() != request.GetName() {
		return nil, fmt.Errorf("the client proxy answered with ID %d, which is that of another tunnel", id)
	}
	s.keepOnly(func(known uint32, t *control.TunnelSpec) bool { return known == id || t.GetName() != spec.GetName() })
	s.tunnels.Store(id, spec)
	return spec, nil
}

// described returns the tunnel of a request, with the fields that only the client proxy knows: its ID, addresses
// and port.
func described(request *control.TunnelRequest, answered *control.TunnelSpec) (*control.TunnelSpec, error) {
	id, port := answered.GetTunnelRef().GetTunnelId(), answered.GetClientProxyPort()
	switch {
	case id == 0:
		return nil, errors.New("the client proxy answered without the ID of a tunnel")
	case port < 1 || port > 65535:
		return nil, fmt.Errorf("the client proxy answered with port %d: want 1 to 65535", port)
	case len(answered.GetClientProxyAddresses()) > maxAddresses:
		return nil, fmt.Errorf("the client proxy answered with %d addresses: want %d or fewer", len(answered.GetClientProxyAddresses()), maxAddresses)
	}
	spec := &control.TunnelSpec{
		TunnelRef:          &control.TunnelRef{TunnelId: id},
		Name:               request.GetName(),
		ServerAddress:      request.GetServerAddress(),
		ServerPort:         request.GetServerPort(),
		ClientProxyAddress: request.GetClientProxyAddress(),
		ClientProxyPort:    port,

		RequestedClientProxyPort: request.GetClientProxyPort(),
	}
	for _, text := range answered.GetClientProxyAddresses() {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("the client proxy answered with %q: want an IP address", text)
		}
		spec.ClientProxyAddresses = append(spec.ClientProxyAddresses, address.String())
	}
	return spec, nil
}

// keepOnly forgets all tunnels except some.
func (s *server) keepOnly(kept func(id uint32, t *control.TunnelSpec) bool) {
	s.tunnels.Range(func(id, t any) bool {
		if !kept(id.(uint32), t.(*control.TunnelSpec)) {
			s.tunnels.Delete(id)
		}
		return true
	})
}

// allowed returns a gRPC status if no tunnel may lead to an address and port.
func (s *server) allowed(ctx context.Context, host string, port int) error {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	switch _, err := s.Servers.Resolve(ctx, s.Names, host, port); {
	case errors.Is(err, allowlist.ErrRefused):
		return status.Error(codes.PermissionDenied, err.Error())
	case err != nil:
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// DeleteTunnel closes a tunnel. The own record goes first: if the call fails, the tunnel leads nowhere, and the next ListTunnels
// deletes it at the client proxy.
func (s *server) DeleteTunnel(ctx context.Context, ref *control.TunnelRef) (*control.DeleteTunnelResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.isConnected(); err != nil {
		return nil, err
	}
	// From now on no stream is made for any answer of the client proxy.
	s.tunnels.Delete(ref.GetTunnelId())
	return s.peer.DeleteTunnel(ctx, ref)
}

// ListTunnels returns the tunnels that both proxies have. A tunnel that only the client proxy has is deleted there, and a
// tunnel that it no longer lists is forgotten. It is the repair: both sides agree after it, also if calls were lost.
func (s *server) ListTunnels(ctx context.Context, asked *control.ListTunnelsRequest) (*control.ListTunnelsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.isConnected(); err != nil {
		return nil, err
	}
	all, err := s.peer.ListTunnels(ctx, asked)
	if err != nil {
		return nil, err
	}
	listed, listedAll := map[uint32]bool{}, all.GetTunnels()
	all.Tunnels = nil
	for _, t := range listedAll {
		ref := t.GetSpec().GetTunnelRef()
		spec := s.known(t.GetSpec())
		if spec == nil {
			s.Log.Warn("the client proxy has a tunnel that was not asked for", "id", ref.GetTunnelId())
			if _, err := s.peer.DeleteTunnel(ctx, ref); err != nil && status.Code(err) != codes.NotFound {
				return nil, err
			}
			continue
		}
		if !listed[ref.GetTunnelId()] {
			listed[ref.GetTunnelId()], t.Spec = true, spec
			t.ServerChecked, t.ServerError = s.reachedBy(ref.GetTunnelId())
			all.Tunnels = append(all.Tunnels, t)
		}
	}
	clear(s.unanswered)
	s.keepOnly(func(id uint32, _ *control.TunnelSpec) bool { return listed[id] })
	s.reached.Range(func(id, _ any) bool {
		if !listed[id.(uint32)] {
			s.reached.Delete(id)
		}
		return true
	})
	all.Instance = s.instance
	all.CertificateNotAfter = min(all.GetCertificateNotAfter(), s.Identity.NotAfter().Unix())
	return all, nil
}

// known returns the own description of a tunnel that the client proxy lists, or nil if it was not asked for.
func (s *server) known(listed *control.TunnelSpec) *control.TunnelSpec {
	if spec, ok := s.tunnels.Load(listed.GetTunnelRef().GetTunnelId()); ok {
		return spec.(*control.TunnelSpec)
	}
	request := s.unanswered[listed.GetName()]
	if request == nil || request.GetServerAddress() != listed.GetServerAddress() || request.GetServerPort() != listed.GetServerPort() ||
		request.GetClientProxyAddress() != listed.GetClientProxyAddress() {
		return nil
	}
	delete(s.unanswered, listed.GetName())
	spec, err := s.adopt(request, listed)
	if err != nil {
		s.Log.Warn("a tunnel of the client proxy is not used", "tunnel", request.GetName(), "error", err)
		return nil
	}
	return spec
}
