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

// Protocol is the ALPN protocol of control connections.
const Protocol = "h2"

// Client calls the proxy at one address. It must be closed.
type Client struct {
	TunnelControlClient
	connection *grpc.ClientConn
}

// Dial returns a client of the proxy at an address, such as 127.0.0.1:36670, whose certificate must have the role. It sends
// nothing before the first call. The connection is kept; when it breaks, the next one uses the identity's present
// certificate. The name of the role is verified and not the address, so the address need not be in the certificate.
func Dial(address string, identity *pki.Identity, peer pki.Role) (*Client, error) {
	// passthrough: the address is dialled as it is, without DNS.
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
		// A peer whose host is gone is noticed only by keepalives.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDisableServiceConfig(), // DNS must not change how these calls are made
		grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, err
	}
	return &Client{TunnelControlClient: NewTunnelControlClient(connection), connection: connection}, nil
}

// Close closes the connection, and fails the calls in progress.
func (c *Client) Close() error { return c.connection.Close() }

// dialling are credentials that use the identity's certificate at the time of each connection.
type dialling struct {
	credentials.TransportCredentials
	identity *pki.Identity
	peer     pki.Role
}

// ClientHandshake implements credentials.TransportCredentials. It verifies the name of the peer's role, not the address.
func (d *dialling) ClientHandshake(ctx context.Context, _ string, connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	// The embedded credentials have the certificate of the time of Dial, which may have been renewed since.
	return credentials.NewTLS(d.identity.Dial(d.peer, Protocol)).ClientHandshake(ctx, d.peer.Name(), connection)
}

// Clone implements credentials.TransportCredentials.
func (d *dialling) Clone() credentials.TransportCredentials {
	return &dialling{TransportCredentials: d.TransportCredentials.Clone(), identity: d.identity, peer: d.peer}
}
