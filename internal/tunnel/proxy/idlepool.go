package proxy

import (
	"crypto/tls"
	"slices"
	"sync"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/proxy/dataconn"
)

const (
	// idleLimit is how many idle data connections are kept, and idleTimeout for how long.
	idleLimit   = 128
	idleTimeout = 30 * time.Second
	// maxAge is when a data connection is no longer used, however busy it is. A connection of a revoked or renewed certificate
	// would otherwise carry streams as long as it is busy.
	maxAge = 10 * time.Minute
)

// pooledConn is a data connection of the server proxy.
type pooledConn struct {
	*dataconn.Conn
	// config and created are the configuration and the time of its handshake.
	config  *tls.Config
	created time.Time
	// idle is since when no stream uses it.
	idle time.Time
}

// idlePool has the data connections of the server proxy that no stream uses. A reaper closes old ones.
type idlePool struct {
	mu     sync.Mutex
	all    []*pooledConn // by last use, the most recent last
	closed bool
	reaper *time.Timer
	// discarded are the connections that carry no more streams, until the client proxy has closed them.
	discarded connections
}

// get returns a connection that was made with a config and is still open; nil if there is none. It prefers the most
// recently used connection, so that the others reach the idle timeout.
func (s *idlePool) get(config *tls.Config) *pooledConn {
	for {
		s.mu.Lock()
		if len(s.all) == 0 {
			s.mu.Unlock()
			return nil
		}
		last := s.all[len(s.all)-1]
		s.all = s.all[:len(s.all)-1]
		s.mu.Unlock()
		// With another config the certificate was renewed.
		if last.config == config && time.Since(last.created) < maxAge && last.Quiet() {
			return last
		}
		// The caller does not wait for the end of this connection: it tries the next one.
		go s.discard(last)
	}
}

// put keeps a connection, or closes it.
func (s *idlePool) put(c *pooledConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.all) >= idleLimit {
		// In a goroutine, because the lock is held and discard waits for the client proxy.
		go s.discard(c)
		return
	}
	c.idle = time.Now()
	s.all = append(s.all, c)
	if s.reaper == nil {
		s.reaper = time.AfterFunc(idleTimeout, s.reap)
	}
}

// discard ends a connection that was cut, or that has unread bytes, without a reset. It may take some seconds.
func (s *idlePool) discard(c *pooledConn) {
	s.discarded.add(c.Conn)
	c.Discard()
	s.discarded.drop(c.Conn)
}

// reap closes the connections that were idle for too long.
func (s *idlePool) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The connections are in the order of their last use, so the first one that is not old ends the search.
	old := 0
	for old < len(s.all) && time.Since(s.all[old].idle) >= idleTimeout {
		go s.discard(s.all[old])
		old++
	}
	// A clone, because the array of the slice would keep the closed connections in memory.
	s.all = slices.Clone(s.all[old:])
	s.reaper = nil
	if len(s.all) > 0 && !s.closed {
		s.reaper = time.AfterFunc(idleTimeout/2, s.reap)
	}
}

// close closes all connections, and keeps no more.
func (s *idlePool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.reaper != nil {
		s.reaper.Stop()
	}
	for _, c := range s.all {
		_ = c.Close()
	}
	s.discarded.close()
	s.all = nil
}

// connections are data connections that are closed at the end of a proxy.
type connections struct {
	mu     sync.Mutex
	all    map[*dataconn.Conn]bool
	closed bool
}

// add closes a connection that comes too late.
func (s *connections) add(c *dataconn.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return
	}
	if s.all == nil {
		s.all = map[*dataconn.Conn]bool{}
	}
	s.all[c] = true
}

// drop closes a connection.
func (s *connections) drop(c *dataconn.Conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

func (s *connections) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.all {
		_ = c.Close()
	}
}
