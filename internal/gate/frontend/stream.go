package frontend

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// alertInternalError is a record that ends a connection before its handshake.
var alertInternalError = []byte{21, 3, 1, 0, 2, 2, 80}

// stream connects a client to a pod, and copies bytes in both directions until both have ended.
func (f *Frontend) stream(ctx context.Context, name string, client net.Conn, targets []routing.Backend) {
	defer func() { _ = client.Close() }()
	if !f.hosts.take(name) {
		f.metrics.refused("host")
		return
	}
	defer f.hosts.release(name)
	f.streams.Add(1)
	defer f.streams.Done()
	backend := routing.Pick(targets)
	if backend == nil || backend.Invalid {
		return
	}
	pod, err := f.dialer.Dial(context.WithoutCancel(ctx), backend)
	if err != nil {
		f.metrics.unanswered()
		endWithAlert(client, alertInternalError)
		return
	}
	defer func() { _ = pod.Close() }()
	done := f.metrics.opened(name)
	defer done()
	defer backend.Use.Begin()()
	var directions sync.WaitGroup
	directions.Go(func() { copyDirection(pod, client) })
	directions.Go(func() { copyDirection(client, pod) })
	directions.Wait()
}

// copyDirection copies until the source has ended, and tells the destination. If the destination fails, the source ends, too.
func copyDirection(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
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

// endWithAlert tells the client at once why nothing follows.
func endWithAlert(conn net.Conn, alert []byte) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(alert)
	_ = conn.Close()
}
