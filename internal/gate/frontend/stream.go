package frontend

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// alertInternalError is a record that ends a connection before its handshake.
var alertInternalError = []byte{21, 3, 1, 0, 2, 2, 80}

// stream connects a client to a pod, and copies bytes in both directions until both have ended. The dial ignores the stop of the
// process: a stream that has begun is drained, and not refused.
func (f *Frontend) stream(ctx context.Context, accepted *recorder, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	name, player := accepted.name, accepted.client
	if !f.enter(name, player.from) {
		f.metrics.refused("host")
		return
	}
	defer f.leave(name, player.from)
	backend := routing.Pick(accepted.targets)
	if backend == nil || backend.Invalid {
		return
	}
	pod, err := f.dialer.DialFor(context.WithoutCancel(ctx), backend, conn.RemoteAddr(), conn.LocalAddr())
	if err != nil {
		f.metrics.unanswered()
		endWithAlert(conn, alertInternalError)
		return
	}
	defer func() { _ = pod.Close() }()
	player.guest.Trust()
	done := f.metrics.opened(name)
	defer done()
	defer backend.Use.Begin()()
	var directions sync.WaitGroup
	directions.Go(func() { f.copyDirection(pod, conn) })
	directions.Go(func() { f.copyDirection(conn, pod) })
	directions.Wait()
}

// copyDirection copies until the source has ended, and then ends this direction of the destination. If the destination fails, the source
// ends, too.
func (f *Frontend) copyDirection(to, from net.Conn) {
	if err := f.copyAll(to, from); err != nil {
		_ = from.Close()
		_ = to.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
}

// idleBuffer is what a stream without bytes holds in each direction.
const idleBuffer = 512

// copyAll copies until the source ends. It waits with a small buffer, and borrows a large one while reads fill the small one.
func (f *Frontend) copyAll(to, from net.Conn) error {
	small := make([]byte, idleBuffer)
	buffer := small
	defer func() {
		if len(buffer) > idleBuffer {
			f.buffers.Put(buffer)
		}
	}()
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return failed //nolint:wrapcheck // it ends the stream
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err //nolint:wrapcheck // it ends the stream
		case n == len(small) && len(buffer) == len(small):
			buffer = f.buffers.Get()
		case n < len(small) && len(buffer) > len(small):
			f.buffers.Put(buffer)
			buffer = small
		}
	}
}

// endWithAlert sends the client the reason, and closes the connection.
func endWithAlert(conn net.Conn, alert []byte) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(alert)
	_ = conn.Close()
}
