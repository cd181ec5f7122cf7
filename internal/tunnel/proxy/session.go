package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// instanceKey is the metadata in which each proxy tells the other one which process it is.
const instanceKey = "berg-tunnel-instance"

const (
	// newcomerLimit and newcomerPatience are how many connections may be open at a port that have
	// proved nothing yet, and for how long each. A handshake takes milliseconds.
	newcomerLimit   = 512
	newcomerTimeout = 10 * time.Second
	// callTimeout is that of a call that is passed on.
	callTimeout = 5 * time.Second
	// lookUpTimeout is that of the look-up of a server's name when its tunnel is prepared. It is
	// shorter than what a controller waits for, so that he hears what is wrong.
	lookUpTimeout = 2 * time.Second
	// messageLimit is far above any message's size.
	messageLimit = 1 << 20
)

func newInstance() string { return rand.Text() }

// withInstance tells the other proxy which process it is called by.
func withInstance(ctx context.Context, instance string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, instanceKey, instance)
}

// instanceOf returns which process metadata are from.
func instanceOf(from metadata.MD) string {
	if values := from.Get(instanceKey); len(values) == 1 {
		return values[0]
	}
	return ""
}

// sender sends on the present stream of a session, for many at once.
type sender[M any] struct {
	mu      sync.Mutex
	present grpcSender[M]
}

type grpcSender[M any] interface{ Send(M) error }

var errNoSession = errors.New("there is no control connection at the moment")

// use makes a stream the present one, or none.
func (s *sender[M]) use(stream grpcSender[M]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present = stream
}

// drop makes a stream the present one no more, if it is.
func (s *sender[M]) drop(stream grpcSender[M]) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	return s.present.Send(message)
}

// newControlServer returns a server of calls by those who show to be of a role.
func newControlServer(identity *pki.Identity, peer pki.Role, calls control.TunnelControlServer) *grpc.Server {
	server := grpc.NewServer(
		grpc.Creds(serving{credentials.NewTLS(identity.Serve(peer, control.Protocol))}),
		grpc.ConnectionTimeout(newcomerTimeout),
		grpc.MaxRecvMsgSize(messageLimit),
		grpc.MaxConcurrentStreams(64),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	control.RegisterTunnelControlServer(server, calls)
	return server
}

// serving are credentials that tell when a newcomer has proved who it is.
type serving struct {
	credentials.TransportCredentials
}

// ServerHandshake shakes hands with a newcomer.
func (s serving) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if guest, ok := connection.(*guest); ok {
		defer guest.known()
	}
	return s.TransportCredentials.ServerHandshake(connection)
}

// Clone returns a copy.
func (s serving) Clone() credentials.TransportCredentials {
	return serving{s.TransportCredentials.Clone()}
}

// door is a listener for newcomers.
type door struct {
	net.Listener
	newcomers *newcomers
}

func newDoor(listener net.Listener) door {
	return door{Listener: listener, newcomers: &newcomers{limit: newcomerLimit, timeout: newcomerTimeout}}
}

// guest is a connection that has proved nothing until it is known.
type guest struct {
	net.Conn
	known func()
}

// Accept waits for a newcomer.
func (d door) Accept() (net.Conn, error) {
	connection, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &guest{Conn: connection, known: d.newcomers.admit(connection)}, nil
}

// pause waits, and tells whether the time is over; it is not if the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
