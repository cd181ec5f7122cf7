package proxy

import (
	"net"
	"syscall"
	"time"
)

// watch tells when a client that waits has gone, so that nobody goes on dialling for it. It takes
// nothing of what the client may have sent.
type watch struct {
	client *net.TCPConn
	done   chan struct{}
}

// newWatch calls gone, in a goroutine of its own, if the connection breaks.
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
			return !isAgain(problem)
		})
		// Bytes, or the end of what the client has to say, tell nothing: it may wait for an answer.
		if err == nil && problem != nil {
			go gone()
		}
	}()
	return w
}

// stop returns when the connection is free to be read.
func (w *watch) stop() {
	_ = w.client.SetReadDeadline(time.Unix(1, 0))
	<-w.done
	_ = w.client.SetReadDeadline(time.Time{})
}
