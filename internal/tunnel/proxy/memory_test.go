package proxy

import (
	"net"
	"runtime"
	"testing"
)

// Streams that do nothing take little memory: no buffers, and small stacks.
func TestIdleStreamsAreSmall(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector takes memory of its own for each stream")
	}
	const count, most = 500, 56 << 10 // bytes for both proxies' halves of a stream, and for what the test has of it
	p := start(t)
	_, at := p.prepare("idle", serve(t, func(c *net.TCPConn) {
		small := make([]byte, 64)
		for {
			n, err := c.Read(small)
			if err != nil {
				return
			}
			_, _ = c.Write(small[:n])
		}
	}))
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := used()
	all := make([]*net.TCPConn, count)
	for i := range all {
		all[i] = dial(t, at)
		asks(t, all[i], "once")
	}
	each := (int64(used()) - int64(before)) / count
	t.Logf("%d bytes for each idle stream", each)
	if each > most {
		t.Errorf("an idle stream takes %d bytes, want %d at most", each, most)
	}
	for _, c := range all {
		_ = c.Close()
	}
}
