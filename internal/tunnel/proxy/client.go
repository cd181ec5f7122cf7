package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bergctf/berg-operator/internal/kit/ports"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/proxy/dataconn"
)

// DataProtocol is the ALPN protocol of data connections.
const DataProtocol = "berg-tunnel-data/1"

// watchAfter is how long a client waits before its connection is watched.
const watchAfter = 250 * time.Millisecond

// client is a client proxy.
type client struct {
	control.UnimplementedTunnelControlServer
	ClientOptions
	instance atomic.Value // string, another one for each server proxy
	tunnels  tunnels
	openings openings
	streams  *streams
	// noise limits the log lines that unauthenticated peers can cause.
	noise *rate.Limiter

	to sender[*control.NewStream]

	data connections

	mu    sync.Mutex
	owner string // the server proxy's instance; empty before the first
	// A connection that ends late compares its number, and leaves a later one alone.
	session  int                // number of the present control connection
	end      context.CancelFunc // ends the present control connection; nil if there is none
	grace    *time.Timer
	ending   chan struct{} // closed when the proxy starts to end
	endOnce  sync.Once
	endError error
}

// RunClient runs a client proxy until the context ends, Shutdown is called, or the server proxy is gone. It returns nil if
// it was asked to end, and otherwise an error, which may be ErrPeerGone or ErrNotStarted.
func RunClient(ctx context.Context, options ClientOptions) error {
	c := &client{
		ClientOptions: options,
		tunnels:       tunnels{limit: options.MaxTunnels, byID: map[uint32]*tunnel{}, byName: map[string]*tunnel{}, gone: map[*tunnel]bool{}, past: &control.Traffic{}},
		openings:      openings{all: map[uint64]*opening{}},
		streams:       newStreams(options.MaxStreams, options.IdleTimeout),
		noise:         rate.NewLimiter(1, 20),
		ending:        make(chan struct{}),
	}
	c.instance.Store(newInstance())
	controlListener, controlAt, err := listen(options.Control)
	if err != nil {
		return fmt.Errorf("%w: control: %w", ErrNotStarted, err)
	}
	dataListener, dataAt, err := listen(options.Data)
	if err != nil {
		_ = controlListener.Close()
		return fmt.Errorf("%w: data: %w", ErrNotStarted, err)
	}
	c.Control, c.Data = controlAt, dataAt

	server := newControlServer(c.Identity, pki.ServerProxy, c)
	var background sync.WaitGroup
	background.Go(func() { c.finish(server.Serve(limited(controlListener, "control", c.Log))) })
	background.Go(func() { c.acceptData(dataListener) })

	c.Log.Info("the client proxy listens", "control", controlAt.String(), "data", dataAt.String(), "instance", c.id())
	c.Ready(Ready{
		Role: "client", Instance: c.id(), PID: os.Getpid(), Version: c.Version,
		ClientControlAddress: controlAt.Address, ClientControlPort: controlAt.Port,
		ClientDataAddress: dataAt.Address, ClientDataPort: dataAt.Port,
	})
	select {
	case <-ctx.Done():
		c.finish(nil)
	case <-c.ending:
	}
	<-c.ending

	// The listeners close before the drain, or new clients would keep it from ending.
	for _, t := range c.tunnels.removeAll(true) {
		c.closeTunnel(t)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Drain)
	defer cancel()
	if c.endError != nil {
		cancel() // without the other proxy no stream can continue
	}
	if cut := c.streams.drain(drain); cut > 0 {
		c.Log.Warn("streams were cut at the end", "streams", cut)
	}
	_ = dataListener.Close()
	c.data.close()
	stopServer(server)
	background.Wait()
	c.mu.Lock()
	if c.grace != nil {
		c.grace.Stop()
	}
	c.mu.Unlock()
	c.Log.Info("the client proxy ends")
	return c.endError
}

func (c *client) id() string { return c.instance.Load().(string) }

// stopServer waits for answers to be sent, for one second at most.
func stopServer(server *grpc.Server) {
	timer := time.AfterFunc(time.Second, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
}

// finish makes the proxy end, with an error or without. Only the first call counts.
func (c *client) finish(err error) {
	c.endOnce.Do(func() {
		c.endError = err
		close(c.ending)
	})
}

func (c *client) isEnding() bool {
	select {
	case <-c.ending:
		return true
	default:
		return false
	}
}

// Shutdown ends the proxy. A server proxy that was replaced cannot end it.
func (c *client) Shutdown(ctx context.Context, _ *control.ShutdownRequest) (*control.ShutdownResponse, error) {
	from, _ := metadata.FromIncomingContext(ctx)
	c.mu.Lock()
	owner := c.owner
	c.mu.Unlock()
	if caller := senderInstance(from); caller != "" && caller != owner {
		return nil, status.Error(codes.FailedPrecondition, "the client proxy belongs to another server proxy")
	}
	c.finish(nil)
	return &control.ShutdownResponse{}, nil
}

// NewStreamsConnection is the server proxy's control connection.
func (c *client) NewStreamsConnection(stream grpc.BidiStreamingServer[control.NewStreamResult, control.NewStream]) error {
	from, _ := metadata.FromIncomingContext(stream.Context())
	owner := senderInstance(from)
	if owner == "" {
		return status.Error(codes.InvalidArgument, "the caller did not send its instance")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	session, err := c.attach(owner, cancel)
	if err != nil {
		return err
	}
	defer c.detach(session, stream)
	// The header is the answer that the server proxy waits for before it counts the session as open.
	if err := stream.SendHeader(metadata.Pairs(instanceKey, c.id())); err != nil {
		return err
	}
	c.to.use(stream)
	// The last connection may have lost some of these. The server proxy ignores requests that it already has.
	for _, o := range c.openings.list() {
		_ = c.to.send(&control.NewStream{StreamRef: o.ref(), Token: o.token[:]})
	}
	c.Log.Info("the server proxy is connected", "peer", owner)

	received := make(chan error, 1)
	go func() {
		for {
			result, err := stream.Recv()
			if err != nil {
				received <- err
				return
			}
			if failure := result.GetFailure(); failure != nil && (!failure.GetRetry() || !c.openAgain(result.GetStreamRef().GetStreamId())) {
				c.giveUp(result.GetStreamRef().GetStreamId(), failure.GetError(), failure.GetMessage(), false)
			}
		}
	}()
	select {
	case err := <-received:
		return err
	case <-ctx.Done():
		return status.Error(codes.Aborted, "another control connection has replaced this one")
	case <-c.ending:
		// An end without an error says that the client proxy ends on purpose.
		if c.endError != nil {
			return status.Error(codes.Aborted, "the client proxy has failed")
		}
		return nil
	}
}

// attach makes a connection of the server proxy the present one, and returns its number. The new connection replaces one of the
// same server proxy: a peer that connects again knows that the former one is broken, and this side may learn of it only by a
// timeout.
func (c *client) attach(owner string, cancel context.CancelFunc) (session int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isEnding() {
		return 0, status.Error(codes.FailedPrecondition, "the client proxy is shutting down")
	}
	if c.owner != "" && c.owner != owner {
		if !c.Reconnect {
			return 0, status.Error(codes.FailedPrecondition, "the client proxy belongs to another server proxy: the proxies of a pair start and end together")
		}
		if c.end != nil {
			return 0, status.Error(codes.FailedPrecondition, "another server proxy is connected to the client proxy: end it first")
		}
		c.Log.Info("another server proxy replaces the one that was lost", "lost", c.owner, "peer", owner)
		c.forget()
	}
	if c.end != nil {
		c.end()
	}
	if c.grace != nil {
		c.grace.Stop()
	}
	c.session++
	c.owner, c.end = owner, cancel
	return c.session, nil
}

// detach starts to wait for the server proxy to connect again, unless it has.
func (c *client) detach(session int, stream grpc.BidiStreamingServer[control.NewStreamResult, control.NewStream]) {
	c.to.drop(stream)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != session || c.isEnding() {
		return
	}
	c.end = nil
	if c.Reconnect {
		c.Log.Warn("the control connection is lost: waiting for a server proxy to connect")
		return
	}
	c.Log.Warn("the control connection is lost", "grace", c.PeerGrace.String())
	c.grace = time.AfterFunc(c.PeerGrace, func() {
		c.finish(fmt.Errorf("%w: the server proxy has not connected again within %s", ErrPeerGone, c.PeerGrace))
	})
}

// forget closes the tunnels of a server proxy that was lost, and cuts their streams.
func (c *client) forget() {
	c.instance.Store(newInstance())
	for _, t := range c.tunnels.removeAll(false) {
		c.closeTunnel(t)
	}
	c.streams.cutAll()
}

// PrepareTunnel listens for the clients of a tunnel.
func (c *client) PrepareTunnel(_ context.Context, asked *control.TunnelRequest) (*control.TunnelSpec, error) {
	request, err := normalized(asked)
	if err != nil {
		return nil, err
	}
	address, err := c.listenAddress(request)
	if err != nil {
		return nil, err
	}
	s := &c.tunnels
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, status.Error(codes.FailedPrecondition, "the client proxy is shutting down")
	}
	// An equal request gets the same answer: the first answer may have been lost.
	if present := s.byName[request.GetName()]; present != nil {
		if proto.Equal(present.request, request) {
			return present.spec, nil
		}
		return nil, status.Errorf(codes.AlreadyExists, "another tunnel %q exists: delete it first", request.GetName())
	}
	if len(s.byID) >= s.limit {
		return nil, status.Errorf(codes.ResourceExhausted, "the client proxy has %d tunnels, which is its limit", len(s.byID))
	}
	wanted := Endpoint{Address: address.String(), Port: int(request.GetClientProxyPort())}
	listener, bound, err := listen(wanted)
	if errors.Is(err, syscall.EADDRINUSE) && wanted.Port != 0 {
		c.Log.Warn("the port of a tunnel is in use: a random one is taken", "tunnel", request.GetName(), "port", wanted.Port)
		listener, bound, err = listen(Endpoint{Address: wanted.Address})
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	reachable, err := reachableAddresses(address)
	if err != nil {
		_ = listener.Close()
		return nil, status.Error(codes.Internal, err.Error())
	}
	s.last++
	t := &tunnel{
		id:       s.last,
		request:  request,
		listener: listener,
		waiting:  make(chan struct{}, c.MaxOpening),
		closed:   make(chan struct{}),
		spec: &control.TunnelSpec{
			TunnelRef:            &control.TunnelRef{TunnelId: s.last},
			Name:                 request.GetName(),
			ServerAddress:        request.GetServerAddress(),
			ServerPort:           request.GetServerPort(),
			ClientProxyAddress:   request.GetClientProxyAddress(),
			ClientProxyAddresses: reachable,
			ClientProxyPort:      int32(bound.Port),

			RequestedClientProxyPort: request.GetClientProxyPort(),
		},
	}
	s.byID[t.id], s.byName[request.GetName()] = t, t
	// The tunnel is in the maps before: a stream of its first client finds it.
	go c.acceptClients(t)
	c.Log.Info("a tunnel is ready", "tunnel", request.GetName(), "id", t.id, "at", bound.String())
	return t.spec, nil
}

// normalized returns a request with its defaults, or an error for an invalid one.
func normalized(asked *control.TunnelRequest) (*control.TunnelRequest, error) {
	request := proto.Clone(asked).(*control.TunnelRequest)
	if request.GetServerAddress() == "" {
		request.ServerAddress = "localhost"
	}
	if request.GetClientProxyAddress() == "" {
		request.ClientProxyAddress = "0.0.0.0"
	}
	switch {
	case request.GetName() == "" || len(request.GetName()) > 253:
		return nil, status.Error(codes.InvalidArgument, "name must be 1 to 253 bytes long")
	case request.GetServerPort() < 1 || request.GetServerPort() > 65535:
		return nil, status.Errorf(codes.InvalidArgument, "server_port is %d: want 1 to 65535", request.GetServerPort())
	case request.GetClientProxyPort() < 0 || request.GetClientProxyPort() > 65535:
		return nil, status.Errorf(codes.InvalidArgument, "client_proxy_port is %d: want 1 to 65535, or 0 for any", request.GetClientProxyPort())
	case len(request.GetServerAddress()) > 253:
		return nil, status.Error(codes.InvalidArgument, "server_address is longer than any host name")
	}
	return request, nil
}

// listenAddress returns the address of a tunnel's listener.
func (c *client) listenAddress(request *control.TunnelRequest) (netip.Addr, error) {
	if request.GetClientProxyAddress() == "localhost" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	address, err := netip.ParseAddr(request.GetClientProxyAddress())
	if err != nil {
		return address, status.Errorf(codes.InvalidArgument, "client_proxy_address is %q: want an IP address of the client proxy, or 0.0.0.0", request.GetClientProxyAddress())
	}
	if port := int(request.GetClientProxyPort()); port != 0 && (port == c.Control.Port || port == c.Data.Port) {
		return address, status.Errorf(codes.InvalidArgument, "client_proxy_port is %d, which is the control or data port of the client proxy", port)
	}
	return address, nil
}

// reachableAddresses returns the addresses that clients can use: the addresses of the network, or the loopback's if
// there is no other.
func reachableAddresses(listening netip.Addr) ([]string, error) {
	if !listening.IsUnspecified() {
		return []string{listening.String()}, nil
	}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the client proxy's addresses: %w", err)
	}
	var outer, loopback []string
	for _, f := range found {
		network, ok := f.(*net.IPNet)
		if !ok {
			continue
		}
		address, ok := netip.AddrFromSlice(network.IP)
		address = address.Unmap()
		switch {
		case !ok || address.IsLinkLocalUnicast():
		case address.IsLoopback():
			loopback = append(loopback, address.String())
		default:
			outer = append(outer, address.String())
		}
	}
	if len(outer) == 0 {
		outer = loopback
	}
	// IPv4 first. A stable order, so that the status of a tunnel does not change.
	slices.SortStableFunc(outer, func(a, b string) int {
		return cmp.Compare(min(strings.Count(a, ":"), 1), min(strings.Count(b, ":"), 1))
	})
	return outer[:min(len(outer), maxAddresses)], nil
}

// DeleteTunnel closes a tunnel's listener. Its streams continue.
func (c *client) DeleteTunnel(_ context.Context, ref *control.TunnelRef) (*control.DeleteTunnelResponse, error) {
	s := &c.tunnels
	s.mu.Lock()
	t := s.byID[ref.GetTunnelId()]
	if t != nil {
		// The tunnel leaves the maps under the lock before its listener is closed: a new tunnel of the same name can
		// be made at the same time.
		delete(s.byID, t.id)
		delete(s.byName, t.request.GetName())
		s.gone[t] = true
	}
	s.mu.Unlock()
	if t == nil {
		return nil, status.Errorf(codes.NotFound, "tunnel %d does not exist", ref.GetTunnelId())
	}
	c.closeTunnel(t)
	return &control.DeleteTunnelResponse{}, nil
}

func (c *client) closeTunnel(t *tunnel) {
	// It is closed before the listener: a goroutine between both knows that the tunnel ends.
	close(t.closed)
	_ = t.listener.Close()
	for _, o := range c.openings.list() {
		if o.tunnel == t {
			c.giveUp(o.id, control.StreamError_STREAM_ERROR_NONEXISTENT_TUNNEL, "the tunnel was deleted before the stream was made", true)
		}
	}
	c.Log.Info("a tunnel is closed", "tunnel", t.request.GetName(), "id", t.id, "streams", t.active.Load())
}

// ListTunnels returns all tunnels.
func (c *client) ListTunnels(context.Context, *control.ListTunnelsRequest) (*control.ListTunnelsResponse, error) {
	s := &c.tunnels
	s.mu.Lock()
	defer s.mu.Unlock()
	all := &control.ListTunnelsResponse{Instance: c.id(), CertificateNotAfter: c.Identity.NotAfter().Unix(), Deleted: s.deleted()}
	for _, t := range s.live() {
		all.Tunnels = append(all.Tunnels, t.state())
		all.ActiveStreams += uint64(t.active.Load())
	}
	for t := range s.gone {
		all.ActiveStreams += uint64(t.active.Load())
	}
	return all, nil
}

// acceptClients accepts the clients of one tunnel, as long as not too many streams wait.
func (c *client) acceptClients(t *tunnel) {
	for {
		// The slot is taken before a client is accepted: clients beyond the limit wait in the listener's backlog, and
		// cost no file descriptor.
		select {
		case t.waiting <- struct{}{}:
		case <-t.closed:
			return
		}
		connection, err := t.listener.AcceptTCP()
		if err != nil {
			<-t.waiting
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// All file descriptors may be in use, until streams end.
			c.Log.Error("accepting a client failed", "tunnel", t.request.GetName(), "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-t.closed:
			}
			continue
		}
		c.open(t, connection)
	}
}

// open asks the server proxy for the other half of a stream. The slot of the tunnel, the slot of the proxy and the counters
// belong to the opening from here on. giveUp returns them, or the end of the stream does.
func (c *client) open(t *tunnel, connection *net.TCPConn) {
	refuse := func(reason string) {
		t.fail(control.StreamError_STREAM_ERROR_LIMIT, reason, c.Now())
		<-t.waiting
		_ = connection.Close()
	}
	// No other goroutine increases it: clients of one tunnel are accepted one after the other.
	if t.slots.Load() >= int64(c.MaxTunnelStreams) {
		refuse("the tunnel has reached its limit of streams")
		return
	}
	if !c.streams.reserve() {
		refuse("the proxy has reached its limit of streams, or is shutting down")
		return
	}
	t.slots.Add(1)
	t.opening.Add(1)
	o := c.openings.add(t, connection)
	o.arm(c.OpeningTimeout, func() {
		c.giveUp(o.id, control.StreamError_STREAM_ERROR_TIMEOUT, "no data connection arrived in time", true)
	}, func() {
		c.giveUp(o.id, control.StreamError_STREAM_ERROR_CANCELLED, "the client disconnected before the stream was made", true)
	})
	// If there is no control connection, it is sent with the next one.
	_ = c.to.send(&control.NewStream{StreamRef: o.ref(), Token: o.token[:]})
	select {
	case <-t.closed: // closeTunnel may have missed this stream
		c.giveUp(o.id, control.StreamError_STREAM_ERROR_NONEXISTENT_TUNNEL, "the tunnel was deleted before the stream was made", true)
	default:
	}
}

// openAgain asks for a new data connection for a stream that still waits, and reports whether that was sent.
func (c *client) openAgain(id uint64) bool {
	o := c.openings.find(id)
	return o != nil && c.to.send(&control.NewStream{StreamRef: o.ref(), Token: o.token[:], Fresh: true}) == nil
}

// giveUp closes a client whose stream cannot be made. cancel: the server proxy may still be making it.
func (c *client) giveUp(id uint64, reason control.StreamError, message string, cancel bool) {
	// take decides the race with a data connection that arrives now: only one of both gets the opening.
	o := c.openings.take(id)
	if o == nil {
		return // it was made or given up before
	}
	o.disarm()
	// The client is closed last, so that the failure is counted before the client notices.
	o.tunnel.fail(reason, message, c.Now())
	o.tunnel.opening.Add(-1)
	o.tunnel.slots.Add(-1)
	<-o.tunnel.waiting
	c.streams.release()
	_ = o.client.Close()
	c.Log.Debug("a stream could not be made", "tunnel", o.tunnel.request.GetName(), "stream", id, "reason", reason.String(), "message", message)
	if cancel {
		_ = c.to.send(&control.NewStream{StreamRef: o.ref(), Cancelled: true})
	}
}

// acceptData accepts data connections.
func (c *client) acceptData(listener *net.TCPListener) {
	config := ports.Secure(c.Identity.Serve(pki.ServerProxy, DataProtocol))
	gate := handshakeGate("data", c.Log)
	for {
		connection, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			c.Log.Error("accepting a data connection failed", "error", err)
			<-time.After(100 * time.Millisecond)
			continue
		}
		guest := gate.Admit(connection)
		if guest == nil {
			continue
		}
		go func() {
			data, err := dataconn.Accept(connection, config, func(conn net.Conn) net.Conn { return &ports.Conn{Conn: conn, Guest: guest} })
			guest.Leave() // authenticated or closed
			if err != nil {
				c.refuse(connection, err)
				return
			}
			// A new goroutine does not keep the large stack of the handshake.
			c.data.add(data)
			go func() {
				defer c.data.drop(data)
				for c.join(data) {
				}
				data.Discard()
			}()
		}()
	}
}

// refuse closes an invalid connection.
func (c *client) refuse(connection net.Conn, err error) {
	_ = connection.Close()
	c.reportRefused(connection, err)
}

func (c *client) reportRefused(connection net.Conn, err error) {
	if c.noise.Allow() {
		c.Log.Warn("a data connection was refused", "from", connection.RemoteAddr().String(), "error", err)
	}
}

// join runs the next stream of a data connection, and reports whether the connection can carry another one. A wrong token ends
// the data connection and no stream: a guess costs the peer a handshake each time.
func (c *client) join(data *dataconn.Conn) bool {
	var p preamble
	switch err := data.ReadFull(p[:]); {
	case errors.Is(err, dataconn.ErrCut) || errors.Is(err, net.ErrClosed):
		return false // the server proxy has closed it
	case err != nil:
		c.reportRefused(data, err)
		return false
	}
	o, err := c.openings.authenticate(&p)
	if err != nil {
		c.reportRefused(data, fmt.Errorf("stream %d of tunnel %d: %w", p.stream(), p.tunnel(), err))
		return false
	}
	o.disarm()
	t := o.tunnel
	t.begin()
	<-t.waiting
	c.Log.Debug("a stream begins", "tunnel", t.request.GetName(), "stream", o.id)
	result := c.streams.run(&stream{plain: o.client, data: data, out: &t.toServer, in: &t.toClient, cancels: true})
	t.end()
	return result == reusable || result == cancelled && data.Cancel()
}
