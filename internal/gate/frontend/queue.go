package frontend

import (
	"net"
	"sync"
)

// queue is a net.Listener of connections that another listener accepted. http.Server wants a listener. It gets the connections
// after their handshake, and only those that speak HTTP.
type queue struct {
	conns   chan net.Conn
	closed  chan struct{}
	close   func()
	address net.Addr
}

func newQueue(address net.Addr) *queue {
	q := &queue{conns: make(chan net.Conn), closed: make(chan struct{}), address: address}
	q.close = sync.OnceFunc(func() { close(q.closed) })
	return q
}

func (q *queue) push(conn net.Conn) {
	select {
	case q.conns <- conn:
	case <-q.closed:
		_ = conn.Close()
	}
}

// Accept returns the next connection.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (q *queue) Close() error {
	q.close()
	return nil
}

// Addr is the address of the other listener.
func (q *queue) Addr() net.Addr { return q.address }
