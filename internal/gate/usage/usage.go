package usage

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Challenge names the Challenge of a route, by the labels of the route's namespace. Routes of no Challenge have no name.
type Challenge struct{ Namespace, Name string }

// Use is what players have done with one route. A nil Use records nothing.
type Use struct {
	uid, id   string
	challenge Challenge
	seen      time.Time

	// first and last are times in milliseconds, 0 before the first connection.
	first, last                 atomic.Int64
	total, open, received, sent atomic.Int64

	mu    sync.Mutex
	conns map[*conn]struct{}
	ended bool
}

// Begin records a request or a stream, until end is called.
func (u *Use) Begin() (end func()) {
	if u == nil {
		return func() {}
	}
	now := time.Now().UnixMilli()
	u.first.CompareAndSwap(0, now)
	u.last.Store(now)
	u.total.Add(1)
	u.open.Add(1)
	return func() {
		u.last.Store(time.Now().UnixMilli())
		u.open.Add(-1)
	}
}

// Track counts the bytes of a connection to a pod, and closes it when the route is deleted.
func (u *Use) Track(to net.Conn) net.Conn {
	if u == nil {
		return to
	}
	c := &conn{Conn: to, use: u}
	u.mu.Lock()
	defer u.mu.Unlock()
	// The route was deleted while the connection was being made. end has closed the others, and would not find this one.
	if u.ended {
		_ = to.Close()
		return to
	}
	u.conns[c] = struct{}{}
	return c
}

// end closes all connections.
func (u *Use) end() {
	u.mu.Lock()
	u.ended = true
	conns := u.conns
	u.conns = nil
	u.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
}

// conn is a connection to a pod.
type conn struct {
	net.Conn
	use *Use
}

// Read reads from the pod.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.use.sent.Add(int64(n))
	return n, err //nolint:wrapcheck // net.Conn has the text
}

// Write writes to the pod.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.use.received.Add(int64(n))
	return n, err //nolint:wrapcheck // net.Conn has the text
}

// CloseWrite ends one direction, if the connection can.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // net.Conn has the text
	}
	return nil
}

// Close closes the connection.
func (c *conn) Close() error {
	c.use.mu.Lock()
	delete(c.use.conns, c)
	c.use.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // net.Conn has the text
}
