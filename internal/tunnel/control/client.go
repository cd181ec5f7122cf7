package control

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// Protocol is what ALPN says on control connections.
const Protocol = "h2"

// Client calls the proxy at one address. Close it.
type Client struct {
	TunnelControlClient
	connection *grpc.ClientConn
}

// Dial returns a client of the proxy that is at an address, such as 127.0.0.1:36670, and shows
// to be of the role; nothing is sent before the first call. The connection is kept, and made
// anew with the identity's present certificate when it breaks.
func Dial(address string, identity *pki.Identity, peer pki.Role) (*Client, error) {
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(&dialling{
			TransportCredentials: credentials.NewTLS(identity.Dial(peer, Protocol)),
			identity:             identity,
			peer:                 peer,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// A peer whose host is gone sends nothing: ask.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDisableServiceConfig(), // nobody's DNS decides how these calls are made
		grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, err
	}
	return &Client{TunnelControlClient: NewTunnelControlClient(connection), connection: connection}, nil
}

// Close ends the connection, and calls that are under way.
func (c *Client) Close() error { return c.connection.Close() }

// dialling are credentials that show what the identity is at the time of each connection.
type dialling struct {
	credentials.TransportCredentials
	identity *pki.Identity
	peer     pki.Role
}

// ClientHandshake makes a connection one with TLS. The name of the peer is that of its role,
// not that of the address.
func (d *dialling) ClientHandshake(ctx context.Context, _ string, connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(d.identity.Dial(d.peer, Protocol)).ClientHandshake(ctx, d.peer.Name(), connection)
}

// Clone returns a copy.
func (d *dialling) Clone() credentials.TransportCredentials {
	return &dialling{TransportCredentials: d.TransportCredentials.Clone(), identity: d.identity, peer: d.peer}
}
