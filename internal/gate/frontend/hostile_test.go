package frontend

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/test/lib/strangers"
)

// dialFrom connects to a port of the gate from an address of the loopback.
func (g *gate) dialFrom(t *testing.T, port int32, address byte) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, 0, address)}}).Dial("tcp", g.addresses[port])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// served waits until a request from another address is answered: the test's deadline ends it.
func (g *gate) served(t *testing.T) {
	t.Helper()
	client := g.client(plainPort, false)
	client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return g.dialFrom(t, plainPort, 99), nil }
	for {
		answer, err := client.Get("http://never.example/")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusNotFound {
				return
			}
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// countOpen returns how many connections the gate has not closed within a second.
func countOpen(conns []net.Conn) int {
	var open atomic.Int32
	var reading sync.WaitGroup
	for _, conn := range conns {
		reading.Go(func() {
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			var timeout net.Error
			if _, err := io.Copy(io.Discard, conn); errors.As(err, &timeout) && timeout.Timeout() {
				open.Add(1)
			}
		})
	}
	reading.Wait()
	return int(open.Load())
}

func TestHalfOpenConnectionsEndForOthers(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second, Limits: Limits{Total: 80, Address: 40, Host: 10}})
	for _, c := range []struct {
		port int32
		sent string
	}{{plainPort, "GET / HTTP/1.1\r\n"}, {securePort, "\x16\x03\x01\x02\x00"}, {rawPort, ""}} {
		var held []net.Conn
		for i := range 200 {
			conn := g.dialFrom(t, c.port, byte(i%20+1))
			_, _ = io.WriteString(conn, c.sent)
			held = append(held, conn)
		}
		g.served(t)
		if open := countOpen(held); open > 80/guestShare {
			t.Errorf("%d connections that sent %q are open", open, c.sent)
		}
	}
}

// mute is a connection whose client says nothing when the server has answered its hello.
type mute struct {
	net.Conn
	ended    context.Context
	answered chan bool
}

// Read reports whether there is an answer, and keeps it.
func (m mute) Read(b []byte) (int, error) {
	n, _ := m.Conn.Read(b)
	m.answered <- n > 0
	<-m.ended.Done()
	return 0, io.EOF
}

// A stranger who does not continue a handshake has had its turn with the first answer: all others get theirs, and a player is served.
func TestHandshakesThatStopKeepNoOtherWaiting(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second, Limits: Limits{Total: 1000, Address: 100, Host: 10}})
	g.serve(t, "web", echo(t, "web", func(conn net.Conn) net.Conn { return conn }))
	g.routeTLS("web", "raw.example")
	for _, port := range []int32{rawPort, securePort} {
		const count = 50
		answered := make(chan bool, count)
		for i := range count {
			conn := mute{g.dialFrom(t, port, byte(i%20+1)), t.Context(), answered}
			go func() { _ = tls.Client(conn, &tls.Config{ServerName: "raw.example"}).Handshake() }()
		}
		for range count {
			if !<-answered {
				t.Errorf("port %d: a handshake ended without an answer to its hello", port)
			}
		}
		g.dialTLS(t, port, "raw.example")
	}
}

func TestOneAddressHoldsItsShareOnly(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second, Limits: Limits{Total: 800, Address: 10, Host: 8}})
	release := make(chan struct{})
	g.serve(t, "slow", startPod(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-release
		}
		fmt.Fprint(w, "served")
	}))
	t.Cleanup(func() { close(release) })
	g.routeHTTP("slow", "https", "slow.example")
	// One connection of HTTP/2 carries many requests: they count, too.
	greedy := g.client(securePort, true)
	get(t, greedy, "https://slow.example/")
	refused := make(chan int, 20)
	for range 20 {
		go func() {
			answer, err := greedy.Get("https://slow.example/wait")
			if err != nil {
				return // the end of the test
			}
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusServiceUnavailable {
				refused <- answer.StatusCode
			}
		}()
	}
	for range 20 - 8/2 {
		<-refused
	}
	other := g.client(securePort, true)
	other.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return g.dialFrom(t, securePort, 7), nil }
	if status, body, _ := get(t, other, "https://slow.example/"); status != http.StatusOK || body != "served" {
		t.Errorf("another address: %d %q", status, body)
	}
	var held []net.Conn
	for range 30 {
		held = append(held, g.dialFrom(t, securePort, 8))
	}
	if open := countOpen(held); open > 10 {
		t.Errorf("one address has %d connections", open)
	}
}

func TestOneAddressTakesItsShareOfTheBytes(t *testing.T) {
	const limit = 1 << 20
	g := newGate(t, Options{Drain: time.Second, Limits: Limits{Total: 100, Address: 50, Host: 50, Rate: limit}})
	g.serve(t, "bulk", startPod(t, func(w http.ResponseWriter, r *http.Request) {
		for chunk := make([]byte, 64<<10); r.URL.Path == "/bulk"; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		fmt.Fprint(w, "small")
	}))
	g.routeHTTP("bulk", "https", "bulk.example")
	var got, streams sync.WaitGroup
	var ended atomic.Int32
	total := make([]int64, 4)
	const duration = 2 * time.Second
	for i := range total {
		got.Add(1)
		streams.Go(func() {
			defer got.Done()
			defer ended.Add(1)
			ctx, cancel := context.WithTimeout(t.Context(), duration)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://bulk.example/bulk", nil)
			answer, err := g.client(securePort, i%2 == 0).Do(req)
			if err == nil {
				total[i], _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
		})
	}
	other := g.client(securePort, true)
	other.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return g.dialFrom(t, securePort, 7), nil }
	get(t, other, "https://bulk.example/")
	if ended.Load() > 0 {
		t.Error("another address waited for the end of the downloads")
	}
	got.Wait()
	streams.Wait()
	var sum int64
	for _, n := range total {
		sum += n
	}
	if most := int64(limit*duration.Seconds()*3/2 + limit); sum > most || sum < limit/2 {
		t.Errorf("%d bytes in %s, want at most %d", sum, duration, most)
	}
}

func TestOneAddressAsksAtItsRate(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second, Limits: Limits{Total: 100, Address: 50, Host: 50, Requests: 20}})
	g.serve(t, "one", startPod(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	g.routeHTTP("one", "https", "one.example")
	began := time.Now()
	var asking sync.WaitGroup
	var answered atomic.Int32
	greedy := g.client(securePort, true)
	get(t, greedy, "https://one.example/")
	for range 40 {
		asking.Go(func() {
			answer, err := greedy.Get("https://one.example/")
			if err != nil {
				t.Error(err)
				return
			}
			_ = answer.Body.Close()
			answered.Add(1)
			if answer.StatusCode != http.StatusOK {
				t.Error(answer.Status)
			}
		})
	}
	other := g.client(securePort, true)
	other.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return g.dialFrom(t, securePort, 7), nil }
	get(t, other, "https://one.example/")
	if answered.Load() == 40 {
		t.Error("another address waited for the requests of this one")
	}
	asking.Wait()
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("40 requests took %s, with 20 in a second", took)
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	g.serve(t, "one", startPod(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	g.routeHTTP("one", "https", "one.example")
	for _, size := range []int{1 << 20, 1 << 10} {
		for _, http2 := range []bool{false, true} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://one.example/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Large", strings.Repeat("a", size))
			answer, err := g.client(securePort, http2).Do(req)
			status := 0
			if err == nil {
				status = answer.StatusCode
				_ = answer.Body.Close()
			}
			if (status == http.StatusOK) != (size == 1<<10) {
				t.Errorf("HTTP/2 %v, %d bytes: %d, %v", http2, size, status, err)
			}
		}
	}
}

// newFramer begins a connection of HTTP/2.
func (g *gate) newFramer(t *testing.T, host string) (*http2.Framer, net.Conn) {
	t.Helper()
	conn := g.dialTLS(t, securePort, host, "h2")
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, bufio.NewReader(conn))
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				_ = conn.Close()
				return
			}
			if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		}
	}()
	return framer, conn
}

func TestFloodsOfHTTP2End(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	var mu sync.Mutex
	running, most := 0, 0
	g.serve(t, "one", startPod(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		if r.URL.Path == "/flood" {
			<-r.Context().Done()
		}
		mu.Lock()
		running--
		mu.Unlock()
		fmt.Fprint(w, "served")
	}))
	g.routeHTTP("one", "https", "one.example")
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "one.example"}, {":path", "/flood"}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	header := []byte(block.String())

	t.Run("rapid reset", func(t *testing.T) {
		framer, _ := g.newFramer(t, "one.example")
		for id := uint32(1); id < 40_000; id += 2 {
			if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: header, EndStream: true, EndHeaders: true}) != nil ||
				framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				break
			}
		}
		if most > maxStreams {
			t.Errorf("%d requests of one connection were with the pod", most)
		}
	})
	t.Run("continuation", func(t *testing.T) {
		framer, conn := g.newFramer(t, "one.example")
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header, EndStream: true})
		filler := make([]byte, 16<<10)
		for i := 0; err == nil && i < 10_000; i++ {
			err = framer.WriteContinuation(1, false, filler)
		}
		if err == nil {
			t.Error("160 MiB of one header were taken")
		}
		_ = conn.Close()
	})
	t.Run("settings and pings", func(t *testing.T) {
		conn := g.dialTLS(t, securePort, "one.example", "h2")
		_, _ = io.WriteString(conn, http2.ClientPreface)
		framer := http2.NewFramer(conn, conn) // it reads nothing: answers pile up
		_ = conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
		err := framer.WriteSettings()
		for i := 0; err == nil && i < 1_000_000; i++ {
			err = framer.WritePing(false, [8]byte{1})
		}
		if err == nil {
			t.Error("a million pings without a reader were taken")
		}
	})
	if status, body, _ := get(t, g.client(securePort, true), "https://one.example/"); status != http.StatusOK || body != "served" {
		t.Errorf("afterwards: %d %q", status, body)
	}
}

func TestRenegotiationIsRefused(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	g.serve(t, "one", startPod(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	g.routeHTTP("one", "https", "one.example")
	raw := g.dialFrom(t, securePort, 1)
	_ = raw.SetReadDeadline(time.Now().Add(20 * time.Second))
	err := strangers.Renegotiate(raw, &tls.Config{ServerName: "one.example", RootCAs: g.roots, MinVersion: tls.VersionTLS12})
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a second hello: %v", err)
	}
}

func TestServerNamesLeaveNothing(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	for i := range 300 {
		name := fmt.Sprintf("name-%d.other", i)
		conn, err := tls.Dial("tcp", g.addresses[rawPort], &tls.Config{ServerName: name, RootCAs: g.roots, MinVersion: tls.VersionTLS12})
		if err == nil {
			t.Fatal("accepted", name)
		}
		_ = conn
		if status, _, _ := get(t, g.client(plainPort, false), "http://"+name+"/"); status != http.StatusNotFound {
			t.Fatal(status)
		}
	}
	if n := len(g.front.hosts.open) + len(g.front.visits.open); n > 0 {
		t.Errorf("%d names are kept", n)
	}
}

// scarce is a listener that has no file for some connections.
type scarce struct {
	net.Listener
	failures atomic.Int32
}

// Accept fails, and later accepts.
func (l *scarce) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestTooManyFilesEndNothing(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	few := &scarce{Listener: listener}
	few.failures.Store(3)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.front.Serve(ctx, routing.Port{Number: plainPort}, few) }()
	g.addresses[plainPort] = listener.Addr().String()
	g.served(t)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func FuzzServerName(f *testing.F) {
	f.Add([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 3}, "one.example")
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), "one.example")
	f.Fuzz(func(t *testing.T, first []byte, name string) {
		g := newGate(t, Options{Drain: time.Millisecond})
		conn := g.dialFrom(t, rawPort, 1)
		_, _ = conn.Write(first)
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection is still open: %v", err)
		}
		// Of any name, the first bytes are replayed as they were.
		passes, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer passes.Close()
		g.serve(t, "through", passes.Addr().String())
		g.routeTLS("through", "through.example")
		if !strings.EqualFold(strings.TrimSuffix(name, "."), "through.example") {
			secure := tls.Client(g.dialFrom(t, rawPort, 2), &tls.Config{ServerName: name, InsecureSkipVerify: true})
			_ = secure.SetDeadline(time.Now().Add(20 * time.Second))
			if secure.Handshake() == nil {
				t.Errorf("%q was accepted", name)
			}
		}
	})
}
