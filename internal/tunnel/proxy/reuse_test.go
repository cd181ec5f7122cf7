package proxy

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Clients that close without reading their answer must not harm the streams that follow on the same data connections.
// TUNNEL_INNOCENT=10000 is the full measure.
func TestClientsThatCloseEarlyHarmNoOther(t *testing.T) {
	total := int64(number("TUNNEL_INNOCENT", 1000))
	p := start(t)
	_, at := p.prepare("echo", serve(t, echo))
	question := bytes.Repeat([]byte("x"), 2048)
	var done atomic.Bool
	var early, all sync.WaitGroup
	for range 2 {
		early.Go(func() {
			for tick := time.Tick(time.Millisecond); !done.Load(); <-tick {
				c, err := net.Dial("tcp", at)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = c.Write(question)
				_ = c.Close()
			}
		})
	}
	var begun, failed atomic.Int64
	for range 4 {
		all.Go(func() {
			for begun.Add(1) <= total {
				if err := once(at); err != nil && failed.Add(1) < 5 {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	done.Store(true)
	early.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d other connections failed", n, total)
	}
	within(t, "no stream is left", func() bool { return p.list().GetActiveStreams() == 0 })
}

// A client that leaves a download ends it at the server, and the next stream is not harmed.
func TestACancelledDownloadEnds(t *testing.T) {
	ended := make(chan error, 1)
	p := start(t)
	_, download := p.prepare("download", serve(t, func(c *net.TCPConn) {
		for block := make([]byte, 64<<10); ; {
			if _, err := c.Write(block); err != nil {
				ended <- err
				return
			}
		}
	}))
	_, other := p.prepare("echo", serve(t, echo))
	for range 20 {
		c := dial(t, download)
		if _, err := io.ReadFull(c, make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		select {
		case <-ended:
		case <-time.After(timeout):
			t.Fatal("the server still sends")
		}
		if err := once(other); err != nil {
			t.Fatal(err)
		}
	}
}

// The idle timeout may cut a stream at the moment at which its server ends it.
func TestAnIdleCutHarmsNoOther(t *testing.T) {
	const idle = 40 * time.Millisecond
	p := start(t, func(o *options) { o.client.IdleTimeout = idle })
	_, slow := p.prepare("slow", serve(t, func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c)
		<-time.After(idle + idle/8)
	}))
	_, other := p.prepare("echo", serve(t, echo))
	for range 100 {
		c := dial(t, slow)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
		if err := once(other); err != nil {
			t.Fatal(err)
		}
	}
}

// breaker passes data connections on. A connection that is older than the present generation ends with the next bytes of the server
// proxy, which are lost.
type breaker struct{ generation, broken atomic.Int64 }

func (b *breaker) forward(t *testing.T, to string) Endpoint {
	t.Helper()
	port := serve(t, func(in *net.TCPConn) {
		out, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer out.Close()
		go func() {
			_, _ = io.Copy(struct{ io.Writer }{in}, struct{ io.Reader }{out})
			_ = in.CloseWrite()
		}()
		made := b.generation.Load()
		for buffer := make([]byte, 64<<10); ; {
			n, err := in.Read(buffer)
			if err != nil {
				return
			}
			if b.generation.Load() > made {
				b.broken.Add(1)
				return
			}
			if _, err := out.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	return Endpoint{Address: "127.0.0.1", Port: port}
}

// A data connection that breaks before its stream has begun is replaced, also where the server speaks first.
func TestABrokenDataConnectionIsReplaced(t *testing.T) {
	b := &breaker{}
	p := start(t, func(o *options) {
		o.between = func(r Ready) (Endpoint, Endpoint) {
			return Endpoint{Address: "127.0.0.1", Port: r.ClientControlPort},
				b.forward(t, Endpoint{Address: "127.0.0.1", Port: r.ClientDataPort}.String())
		}
	})
	_, at := p.prepare("greets", serve(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "welcome ")
		echo(c)
	}))
	greet := func() {
		t.Helper()
		c := dial(t, at)
		_, _ = io.WriteString(c, "friend")
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != "welcome friend" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	greet()
	// The server proxy may keep the data connection a moment later than the client notices the end.
	within(t, "five data connections have broken", func() bool {
		b.generation.Add(1)
		greet()
		return b.broken.Load() >= 5
	})
	if failures := p.list().GetTunnels()[0].GetTraffic().GetFailures(); len(failures) > 0 {
		t.Errorf("failures were counted: %v", failures)
	}
}
