package proxy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
)

// A client that says all, ends its side and waits for the answer gets it.
func TestEachSideEndsByItself(t *testing.T) {
	p := start(t)
	_, at := p.prepare("sum", serve(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c) // until the client has said all
		_, _ = c.Write(bytes.ToUpper(all))
	}))
	c := dial(t, at)
	_, _ = io.WriteString(c, "how do you do")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "HOW DO YOU DO" {
		t.Errorf("%q, %v", got, err)
	}

	// And the other way round: the server ends its side first, and listens on.
	heard := make(chan string, 1)
	_, at = p.prepare("listener", serve(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "more")
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		heard <- string(all)
	}))
	c = dial(t, at)
	if got, err := io.ReadAll(c); err != nil || string(got) != "more" {
		t.Errorf("%q, %v", got, err)
	}
	_, _ = io.WriteString(c, "and on")
	_ = c.CloseWrite()
	select {
	case got := <-heard:
		if got != "and on" {
			t.Errorf("the server heard %q", got)
		}
	case <-time.After(timeout):
		t.Error("the server heard nothing")
	}
}

// A connection that breaks does not look like one that ends.
func TestAnAbortIsAnAbort(t *testing.T) {
	p := start(t)
	_, at := p.prepare("breaks", serve(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "half of an ans")
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	}))
	c := dial(t, at)
	if _, err := io.ReadFull(c, make([]byte, 14)); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte{1})
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%v: want a reset, the client would take half an answer for a whole one", err)
	}

	broken := make(chan error, 1)
	_, at = p.prepare("client", serve(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "?")
		_, err := io.ReadAll(c)
		broken <- err
	}))
	c = dial(t, at)
	_, _ = io.ReadFull(c, make([]byte, 1))
	_, _ = io.WriteString(c, "half of a quest")
	_ = c.SetLinger(0)
	_ = c.Close()
	select {
	case err := <-broken:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v: want a reset", err)
		}
	case <-time.After(timeout):
		t.Error("the server received nothing")
	}
}

// TUNNEL_BYTES=1073741824 sends a GiB each way.
func TestBytesArriveAsTheyWereSent(t *testing.T) {
	size := number("TUNNEL_BYTES", 48<<20)
	p := start(t)
	type sums struct{ sent, received [32]byte }
	there := make(chan sums, 1)
	both := func(c *net.TCPConn, seed uint64) (s sums) {
		var all sync.WaitGroup
		all.Go(func() { s.sent = send(t, c, size, seed) })
		all.Go(func() { s.received = receive(t, c) })
		all.Wait()
		return s
	}
	_, at := p.prepare("bulk", serve(t, func(c *net.TCPConn) { there <- both(c, 1) }))
	c := dial(t, at)
	_ = c.SetDeadline(time.Now().Add(10 * time.Minute))
	begin := time.Now()
	here := both(c, 2)
	away := <-there
	if here.sent != away.received || here.received != away.sent {
		t.Error("what arrived is not what was sent")
	}
	t.Logf("%d MiB each way concurrently in %s", size>>20, time.Since(begin).Round(time.Millisecond))
	within(t, "the stream is counted", func() bool {
		traffic := p.list().GetTunnels()[0].GetTraffic()
		return traffic.GetBytesToServer() == uint64(size) && traffic.GetBytesToClient() == uint64(size)
	})
}

// send sends pieces of all sizes.
func send(t testing.TB, c *net.TCPConn, size int, seed uint64) (sum [32]byte) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, seed))
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	h := sha256.New()
	out := io.MultiWriter(c, h)
	for left := size; left > 0; {
		n := min(left, 1+random.IntN(len(noise)-1))
		if random.IntN(4) == 0 {
			n = min(left, 1+random.IntN(100))
		}
		if _, err := out.Write(noise[:n]); err != nil {
			t.Error(err)
			break
		}
		left -= n
	}
	_ = c.CloseWrite()
	h.Sum(sum[:0])
	return sum
}

func receive(t testing.TB, c *net.TCPConn) (sum [32]byte) {
	t.Helper()
	h := sha256.New()
	if _, err := io.Copy(h, struct{ io.Reader }{c}); err != nil {
		t.Error(err)
	}
	h.Sum(sum[:0])
	return sum
}

// TUNNEL_CONNECTIONS=10000 makes as many.
func TestShortConnections(t *testing.T) {
	count := number("TUNNEL_CONNECTIONS", 1500)
	p := start(t)
	_, at := p.prepare("short", serve(t, echo))
	var next, failed atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for range 32 {
		all.Go(func() {
			for next.Add(1) <= int64(count) {
				if err := once(at); err != nil {
					failed.Add(1)
					t.Log(err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d connections in %s", count, time.Since(begin).Round(time.Millisecond))
	if failed.Load() > 0 {
		t.Errorf("%d of %d failed", failed.Load(), count)
	}
	within(t, "all are counted, and none is left", func() bool {
		all := p.list()
		return all.GetActiveStreams() == 0 && all.GetTunnels()[0].GetTraffic().GetStreams() == uint64(count)
	})
}

// once is a whole conversation.
func once(at string) error {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(c, "hello"); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && string(got) != "hello" {
		err = errors.New("wrong answer: " + string(got))
	}
	return err
}

// A peer that does not read delays no other stream, and costs no memory beyond the buffers of its connections.
func TestASlowReaderAmongFastOnes(t *testing.T) {
	p := start(t)
	var written atomic.Int64
	_, flood := p.prepare("flood", serve(t, func(c *net.TCPConn) {
		chunk := make([]byte, 64<<10)
		for {
			n, err := c.Write(chunk)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	_, quick := p.prepare("quick", serve(t, echo))
	slow := dial(t, flood)
	// It is slow from when the server can send no more.
	last := int64(-1)
	within(t, "the server waits for the reader", func() bool {
		defer func() { last = written.Load() }()
		<-time.After(100 * time.Millisecond)
		return written.Load() > 0 && written.Load() == last
	})
	if most := int64(64 << 20); written.Load() > most {
		t.Errorf("%d bytes were taken from the server for a client that reads none", written.Load())
	}
	for range 20 {
		if err := once(quick); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.CopyN(io.Discard, slow, 2*last); err != nil {
		t.Errorf("the slow one cannot read on: %v", err)
	}
	_ = slow.Close()
}

// dead listens and accepts no connections, so that dialling it hangs.
func dead(t testing.TB) (port int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port = bound.(*syscall.SockaddrInet4).Port
	// Fill the queue.
	for range 2 {
		if c, err := net.DialTimeout("tcp", Endpoint{Address: "127.0.0.1", Port: port}.String(), 200*time.Millisecond); err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	return port
}

func TestADeadServerBesideLiveOnes(t *testing.T) {
	p := start(t, func(o *options) { o.client.MaxOpening = 8 })
	_, hangs := p.prepare("hangs", dead(t))
	_, refuses := p.prepare("refuses", closedPort(t))
	_, lives := p.prepare("lives", serve(t, echo))
	for range 20 { // more than may wait at the same time
		dial(t, hangs)
		dial(t, refuses)
	}
	within(t, "as many as may wait do", func() bool {
		all := p.list().GetTunnels()
		return all[0].GetOpeningStreams() == 8 && all[1].GetOpeningStreams() == 8
	})
	begin := time.Now()
	for range 50 {
		if err := once(lives); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("50 streams to a server that lives took %s", took)
	}
}

func closedPort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestAServerThatNeverAnswers(t *testing.T) {
	p := start(t, func(o *options) { o.server.DialTimeout = 300 * time.Millisecond })
	_, at := p.prepare("refuses", closedPort(t))
	isClosed(t, dial(t, at))
	state := p.list().GetTunnels()[0]
	if f := state.GetTraffic().GetFailures(); len(f) != 1 || f[0].GetError() != control.StreamError_STREAM_ERROR_SERVER_UNAVAILABLE || f[0].GetCount() != 1 {
		t.Errorf("failures: %v", f)
	}
	if state.GetLastFailure() == "" || state.GetLastFailureTime() == 0 {
		t.Errorf("the failure is not reported: %v", state)
	}
}

func TestAServerThatComesLate(t *testing.T) {
	p := start(t)
	port := closedPort(t)
	_, at := p.prepare("late", port)
	c := dial(t, at)
	within(t, "the client waits", func() bool { return p.list().GetTunnels()[0].GetOpeningStreams() == 1 })
	l, err := net.Listen("tcp", Endpoint{Address: "127.0.0.1", Port: port}.String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			echo(c.(*net.TCPConn))
			_ = c.Close()
		}
	}()
	asks(t, c, "are you there now?")
	_ = c.Close()
}

func TestAClientThatGoesBeforeItsStreamIsMade(t *testing.T) {
	p := start(t)
	_, at := p.prepare("refuses", closedPort(t))
	c := dial(t, at)
	within(t, "the client waits", func() bool { return p.list().GetTunnels()[0].GetOpeningStreams() == 1 })
	<-time.After(2 * watchAfter)
	_ = c.SetLinger(0)
	_ = c.Close()
	within(t, "no stream waits for it", func() bool {
		state := p.list().GetTunnels()[0]
		f := state.GetTraffic().GetFailures()
		return state.GetOpeningStreams() == 0 && len(f) == 1 && f[0].GetError() == control.StreamError_STREAM_ERROR_CANCELLED
	})
}

func TestTooManyStreams(t *testing.T) {
	p := start(t, func(o *options) { o.client.MaxStreams = 3 })
	_, at := p.prepare("few", serve(t, echo))
	var held []*net.TCPConn
	for range 3 {
		c := dial(t, at)
		asks(t, c, "a place")
		held = append(held, c)
	}
	isClosed(t, dial(t, at))
	asks(t, held[0], "still there?")
	_ = held[1].Close()
	within(t, "the place is free", func() bool { return once(at) == nil })
}

// One tunnel of which clients keep all that they get leaves some to the others.
func TestAGreedyTunnelBesideALiveOne(t *testing.T) {
	p := start(t, func(o *options) { o.client.MaxStreams, o.client.MaxTunnelStreams = 5, 3 })
	_, greedy := p.prepare("greedy", serve(t, echo))
	_, lives := p.prepare("lives", serve(t, echo))
	var held []*net.TCPConn
	for range 3 {
		c := dial(t, greedy)
		asks(t, c, "a place")
		held = append(held, c)
	}
	for range 5 {
		isClosed(t, dial(t, greedy))
	}
	for range 20 {
		if err := once(lives); err != nil {
			t.Fatal(err)
		}
	}
	asks(t, held[0], "still there?")
	failures := p.list().GetTunnels()[0].GetTraffic().GetFailures()
	if len(failures) != 1 || failures[0].GetError() != control.StreamError_STREAM_ERROR_LIMIT || failures[0].GetCount() != 5 {
		t.Errorf("failures: %v", failures)
	}
	_ = held[1].Close()
	within(t, "the place is free", func() bool { return once(greedy) == nil })
}

// Streams that wait for their server have places, too, and give them back.
func TestPlacesOfStreamsThatFail(t *testing.T) {
	p := start(t, func(o *options) {
		o.client.MaxTunnelStreams = 2
		o.server.DialTimeout = 100 * time.Millisecond
	})
	_, at := p.prepare("refuses", closedPort(t))
	for range 6 {
		isClosed(t, dial(t, at))
	}
	for _, f := range p.list().GetTunnels()[0].GetTraffic().GetFailures() {
		if f.GetError() == control.StreamError_STREAM_ERROR_LIMIT {
			t.Errorf("%d streams found no place", f.GetCount())
		}
	}
}

func TestIdleStreamsAreCut(t *testing.T) {
	p := start(t, func(o *options) { o.client.IdleTimeout = 2 * time.Second })
	_, at := p.prepare("idle", serve(t, echo))
	idle, busy := dial(t, at), dial(t, at)
	asks(t, idle, "once")
	begin := time.Now()
	cut := make(chan time.Duration, 1)
	go func() {
		_, _ = idle.Read(make([]byte, 1))
		cut <- time.Since(begin)
	}()
	var after time.Duration
	for after == 0 && time.Since(begin) < timeout {
		asks(t, busy, "again")
		select {
		case after = <-cut:
		case <-time.After(20 * time.Millisecond):
		}
	}
	if after < 1500*time.Millisecond {
		t.Errorf("an idle stream was cut after %s; 0 is never", after)
	}
	asks(t, busy, "still here")
	within(t, "the place is free", func() bool { return p.list().GetActiveStreams() == 1 })
}

// A deleted tunnel never looks idle while its last stream begins: the bytes of that stream would not be counted.
func TestATunnelWhoseStreamBeginsIsNotIdle(t *testing.T) {
	for range 20000 {
		one := &tunnel{}
		one.opening.Add(1)
		begun := make(chan struct{})
		go func() {
			one.begin()
			close(begun)
		}()
		for waits := true; waits; {
			if one.isIdle() {
				t.Fatal("a stream was lost sight of")
			}
			select {
			case <-begun:
				waits = false
			default:
			}
		}
	}
}
