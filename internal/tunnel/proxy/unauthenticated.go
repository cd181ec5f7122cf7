package proxy

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// unauthenticated holds the connections whose peer has not authenticated yet. Their number is limited, and each has a
// timeout. If there are too many, the oldest one is closed and not the latest, so that a peer that opens many connections
// without a handshake cannot keep legitimate ones out.
type unauthenticated struct {
	limit   int
	timeout time.Duration

	mu    sync.Mutex
	queue list.List // elements are net.Conn, the oldest first
}

// admit starts the timeout of a connection. The caller must call authenticated when the handshake has ended in any way.
func (u *unauthenticated) admit(connection net.Conn) (authenticated func()) {
	u.mu.Lock()
	var oldest net.Conn
	if u.queue.Len() >= u.limit {
		oldest = u.queue.Remove(u.queue.Front()).(net.Conn)
	}
	element := u.queue.PushBack(connection)
	u.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	// The timeout also ends a handshake that makes no progress, since closing the connection makes its reads fail.
	timer := time.AfterFunc(u.timeout, func() { _ = connection.Close() })
	return func() {
		timer.Stop()
		u.mu.Lock()
		u.queue.Remove(element) // a no-op if it is no longer in the list
		u.mu.Unlock()
	}
}
