package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/bergctf/berg-operator/internal/kit/ports"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// instanceKey is the metadata key with which each proxy identifies its process to the other one.
const instanceKey = "berg-tunnel-instance"

const (
	// maxUnauthenticated is how many connections to a port may be open before their handshake has ended.
	maxUnauthenticated = 512
	// handshakeTimeout is for a handshake, which takes milliseconds.
	handshakeTimeout = 10 * time.Second
	// callTimeout is for a call that is passed on to the client proxy.
	callTimeout = 5 * time.Second
	// lookUpTimeout is for resolving a server's name when its tunnel is prepared. It is shorter than the timeout of a
	// controller's call, so that the controller gets the error.
	lookUpTimeout = 2 * time.Second
	// messageLimit is far above the size of any message. A peer with a certificate could otherwise make this process allocate any
	// amount.
	messageLimit = 1 << 20
)

// newInstance identifies a process, and not a host: a proxy that was started again has none of the tunnels of its predecessor.
func newInstance() string { return rand.Text() }

// withInstance adds the instance of the calling process.
func withInstance(ctx context.Context, instance string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, instanceKey, instance)
}

// senderInstance returns the instance of the process that sent metadata.
func senderInstance(from metadata.MD) string {
	if values := from.Get(instanceKey); len(values) == 1 {
		return values[0]
	}
	return ""
}

// sender sends on the present stream of a session. It may be used concurrently.
type sender[M any] struct {
	mu      sync.Mutex
	present grpcSender[M]
}

type grpcSender[M any] interface{ Send(M) error }

var errNoSession = errors.New("there is no control connection")

// use makes a stream the present one.
func (s *sender[M]) use(stream grpcSender[M]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present = stream
}

// drop stops using a stream, if it is the present one.
func (s *sender[M]) drop(stream grpcSender[M]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The peer may have connected again before the earlier stream has ended: the later one stays.
	if s.present == stream {
		s.present = nil
	}
}

func (s *sender[M]) send(message M) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.present == nil {
		return errNoSession
	}
	// Under the lock: a gRPC stream allows only one Send at a time.
	return s.present.Send(message)
}

// newControlServer returns a server for calls by peers with a role.
func newControlServer(identity *pki.Identity, peer pki.Role, calls control.TunnelControlServer) *grpc.Server {
	server := grpc.NewServer(
		grpc.Creds(serverCredentials{credentials.NewTLS(ports.Secure(identity.Serve(peer, control.Protocol)))}),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxRecvMsgSize(messageLimit),
		grpc.MaxConcurrentStreams(64),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	control.RegisterTunnelControlServer(server, calls)
	return server
}

// serverCredentials trust a connection whose handshake has succeeded.
type serverCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (s serverCredentials) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := s.TransportCredentials.ServerHandshake(connection)
	if guest, ok := connection.(*ports.Conn); ok && err == nil {
		guest.Trust()
	}
	return secure, info, err
}

// Clone implements credentials.TransportCredentials.
func (s serverCredentials) Clone() credentials.TransportCredentials {
	return serverCredentials{s.TransportCredentials.Clone()}
}

// limited limits the connections whose peer has not authenticated yet.
func limited(listener net.Listener, name string, log *slog.Logger) ports.Listener {
	return ports.Listener{Listener: listener, Gate: handshakeGate(name, log)}
}

func handshakeGate(name string, log *slog.Logger) *ports.Gate {
	return ports.NewGate(ports.Limits{Untrusted: maxUnauthenticated}, log.With("port", name))
}

// sleep waits, and reports whether the time is over. It is not if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
