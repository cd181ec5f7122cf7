package proxy

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// watch notices when a client that waits disconnects, so that no server is dialled for it any more. It consumes none of
// the client's bytes. It peeks, because a byte that was read here would be missing in the stream.
type watch struct {
	client *net.TCPConn
	done   chan struct{}
}

// newWatch calls gone, in another goroutine, if the connection breaks.
func newWatch(client *net.TCPConn, gone func()) *watch {
	w := &watch{client: client, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		raw, err := client.SyscallConn()
		if err != nil {
			return
		}
		var problem error
		var peek [1]byte
		err = raw.Read(func(fd uintptr) bool {
			_, _, problem = syscall.Recvfrom(int(fd), peek[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return !errors.Is(problem, syscall.EAGAIN)
		})
		// Bytes or a half-closed connection mean nothing: the client may wait for an answer.
		if err == nil && problem != nil {
			go gone()
		}
	}()
	return w
}

// stop returns when the connection can be read by others.
func (w *watch) stop() {
	// A deadline in the past is the only way to end a wait of the runtime's poller without closing the connection.
	_ = w.client.SetReadDeadline(time.Unix(1, 0))
	<-w.done
	_ = w.client.SetReadDeadline(time.Time{})
}
