package proxy

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// newcomers are connections of whoever has proved nothing yet. There are so many at most, and
// each has so long: if there are more, the oldest one is closed, and not the latest, so that
// somebody who opens many and says nothing does not keep those out who know what to say.
type newcomers struct {
	limit   int
	timeout time.Duration

	mu    sync.Mutex
	queue list.List // of net.Conn, the oldest first
}

// admit gives a connection the time to prove itself. known is to be called when it has, or has
// been closed.
func (n *newcomers) admit(connection net.Conn) (known func()) {
	n.mu.Lock()
	var oldest net.Conn
	if n.queue.Len() >= n.limit {
		oldest = n.queue.Remove(n.queue.Front()).(net.Conn)
	}
	place := n.queue.PushBack(connection)
	n.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	timer := time.AfterFunc(n.timeout, func() { _ = connection.Close() })
	return func() {
		timer.Stop()
		n.mu.Lock()
		n.queue.Remove(place) // which does nothing to one that is no longer in it
		n.mu.Unlock()
	}
}
