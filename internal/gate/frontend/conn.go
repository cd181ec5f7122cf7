package frontend

import (
	"bytes"
	"context"
	"net"
	"net/netip"

	"golang.org/x/time/rate"

	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/kit/ports"
)

// client is a connection of a player. It counts until it is closed, and its bytes count against the rate of its address.
type client struct {
	net.Conn
	guest   *ports.Guest
	from    netip.Prefix
	rate    *sharedRate
	open    context.Context
	release func()
}

// Read reads, and waits as long as the rate of the address wants.
func (c *client) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wait(n)
	return n, err //nolint:wrapcheck // net.Conn has the text
}

// Write waits as long as the rate of the address wants, and writes. The first bytes answer the hello of a TLS handshake.
func (c *client) Write(b []byte) (int, error) {
	c.guest.Computed()
	c.wait(len(b))
	return c.Conn.Write(b) //nolint:wrapcheck // net.Conn has the text
}

// wait comes after a read and before a write, so the kernel's buffers slow the other side down.
func (c *client) wait(n int) {
	for c.rate.bytes.Limit() != rate.Inf && n > 0 {
		part := min(n, c.rate.bytes.Burst())
		if c.rate.bytes.WaitN(c.open, part) != nil {
			return // closed
		}
		n -= part
	}
}

// Close closes the connection.
func (c *client) Close() error {
	c.release()
	return c.Conn.Close() //nolint:wrapcheck // net.Conn has the text
}

// CloseWrite ends one direction, if the connection can.
func (c *client) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // net.Conn has the text
	}
	return nil
}

// recorder keeps the bytes that it reads, until it is known that the connection ends here. After refuse, nothing is written: the library would
// send an alert of its own. crypto/tls reads the server name only as a part of a handshake. For a connection that is passed
// through, the bytes that it read go to the pod.
type recorder struct {
	*client
	port    routing.Port
	read    bytes.Buffer
	done    bool
	refused error
	// What the server name led to.
	name     string
	listener *routing.Listener
	targets  []routing.Backend
}

// Read reads, and keeps the bytes.
func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.client.Read(b)
	if !r.done {
		r.read.Write(b[:n])
	}
	return n, err
}

// Write writes, unless the connection was refused.
func (r *recorder) Write(b []byte) (int, error) {
	if r.refused != nil {
		return len(b), nil //nolint:nilerr // the library must not send its own alert
	}
	return r.client.Write(b)
}

func (r *recorder) refuse(reason error) error {
	r.refused = reason
	return reason
}

func (r *recorder) forget() {
	r.done = true
	r.read = bytes.Buffer{}
}

// replay returns the connection as it was before anything was read.
func (r *recorder) replay() net.Conn {
	return &replayed{client: r.client, first: r.read.Bytes()}
}

// replayed is a connection whose first bytes were read before.
type replayed struct {
	*client
	first []byte
}

// Read returns the first bytes, and then reads from the connection.
func (r *replayed) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.client.Read(b)
}

type clientKey struct{}

// withClient stores the client of a connection, so that the handlers of its requests find it.
func withClient(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	switch c := conn.(type) {
	case *client:
		return context.WithValue(ctx, clientKey{}, c)
	case *recorder:
		return context.WithValue(ctx, clientKey{}, c.client)
	}
	return ctx
}
