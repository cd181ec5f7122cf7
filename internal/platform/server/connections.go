package server

import (
	"net"
	"net/netip"
	"sync"
)

// fairListener accepts from one address at most limit connections at a time, and closes further ones immediately.
// Without it one client could hold all connections of MAX_CONNECTIONS, and keep every platform out.
type fairListener struct {
	net.Listener

	limit int
	mu    sync.Mutex
	held  map[netip.Addr]int
}

// fair gives one address at most half of all connections. It is not less, because a proxy in front has a single address.
func fair(l net.Listener, connections int) net.Listener {
	return &fairListener{Listener: l, limit: max(connections/2, 1), held: map[netip.Addr]int{}}
}

func (l *fairListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, ok := c.RemoteAddr().(*net.TCPAddr)
		if !ok {
			return c, nil
		}
		from := peer.AddrPort().Addr()
		if l.take(from) {
			return &fairConn{Conn: c, closed: sync.OnceFunc(func() { l.giveBack(from) })}, nil
		}
		_ = c.Close() // its peer sees the end
	}
}

func (l *fairListener) take(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[from] >= l.limit {
		return false
	}
	l.held[from]++
	return true
}

func (l *fairListener) giveBack(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[from]--; l.held[from] == 0 {
		delete(l.held, from)
	}
}

type fairConn struct {
	net.Conn

	closed func()
}

func (c *fairConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
