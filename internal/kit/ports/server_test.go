package ports

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// start serves until the test ends, and returns the address.
func start(t *testing.T, o Options) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	server, behind := NewServer(listener, o)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(behind) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// send opens a connection, and sends text.
func send(t *testing.T, address, text string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

const withoutBody = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"

// The client gets the answer, and the end of its connection, although its body never comes.
func TestARefusedClientIsAnsweredAndLeaves(t *testing.T) {
	address := start(t, Options{KeepAlive: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Refuse(w, r)
		http.Error(w, "no", http.StatusUnauthorized)
	})})
	answer, err := io.ReadAll(send(t, address, withoutBody))
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401 ") || !strings.Contains(string(answer), "Connection: close") {
		t.Errorf("%s %v", answer, err)
	}
}

// A request without its body ends, whether its handler reads the body or not.
func TestABodyThatDoesNotComeEndsTheRequest(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"read":     func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
		"not read": func(http.ResponseWriter, *http.Request) {},
	} {
		t.Run(name, func(t *testing.T) {
			address := start(t, Options{KeepAlive: true, Handler: handler, requestTime: 200 * time.Millisecond})
			if _, err := io.ReadAll(send(t, address, withoutBody)); err != nil {
				t.Errorf("the connection did not end: %v", err)
			}
		})
	}
}

// The deadline of a request is over when it has arrived: a handler may wait for longer, and knows when its client leaves.
func TestAHandlerOutlivesTheDeadlineOfItsRequest(t *testing.T) {
	const limit = 200 * time.Millisecond
	ended, arrived := make(chan error, 2), make(chan struct{}, 2)
	address := start(t, Options{KeepAlive: true, AnswerTime: time.Minute, requestTime: limit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Trust(r.Context())
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		wait, cancel := context.WithTimeout(r.Context(), 2*limit)
		defer cancel()
		<-wait.Done()
		ended <- r.Context().Err()
	})})
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"} {
		conn := send(t, address, request)
		<-arrived
		defer conn.Close()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("a request ended before its handler: %v", err)
		}
	}
}

// A stream has no end, and each of its writes has one.
func TestAStreamOutlivesTheDeadlineOfAnswers(t *testing.T) {
	next := make(chan string)
	address := start(t, Options{AnswerTime: 10 * time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Trust(r.Context())
		w = Stream(w)
		for text := range next {
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		}
	})})
	lines := bufio.NewReader(send(t, address, "GET / HTTP/1.0\r\n\r\n"))
	defer close(next)
	for _, text := range []string{"one\n", "two\n"} {
		<-time.After(50 * time.Millisecond)
		next <- text
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == text {
				break
			}
		}
	}
}

// Many clients that send no body do not take the port away, and cost a bounded number of connections.
func TestAFullPortServesOthers(t *testing.T) {
	address := start(t, Options{KeepAlive: true, Limits: Limits{Untrusted: 16}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Token") != "right" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		Trust(r.Context())
	})})
	for range 200 {
		send(t, address, withoutBody)
	}
	for n := range 10 {
		conn := send(t, address, "GET / HTTP/1.1\r\nHost: x\r\nToken: right\r\n\r\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
			t.Errorf("request %d: %s %v", n, line, err)
		}
	}
}

// A client without proof is not trusted because it asked something and got an answer.
func TestAnsweredClientsOfAnAnonymousPortStayFew(t *testing.T) {
	address := start(t, Options{Anonymous: true, KeepAlive: true, Limits: Limits{Untrusted: 16}, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	var open atomic.Int32
	for range 200 {
		conn := send(t, address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		answer := bufio.NewReader(conn)
		if line, err := answer.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
			t.Fatalf("%s %v", line, err)
		}
		open.Add(1)
		go func() {
			_, _ = io.Copy(io.Discard, answer)
			open.Add(-1)
		}()
		<-time.After(fresh / 50) // the oldest of one address ends once it is not fresh
	}
	<-time.After(fresh)
	_, _ = bufio.NewReader(send(t, address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")).ReadString('\n')
	for deadline := time.Now().Add(5 * time.Second); open.Load() > 16; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open", open.Load())
		}
	}
}

// Whole bodies cost as little as unfinished ones, however long handlers take for them.
func TestHandlersHaveFewBytesOfBodies(t *testing.T) {
	const limit, size, clients = 256 << 10, 64 << 10, 12
	var held, most, answered atomic.Int64
	full := make(chan struct{}, clients)
	release := make(chan struct{})
	address := start(t, Options{Anonymous: true, Limits: Limits{Bytes: limit}, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		n := held.Add(int64(len(content)))
		most.Store(max(n, most.Load()))
		full <- struct{}{}
		<-release
		held.Add(-int64(len(content)))
		answered.Add(1)
	})})
	request := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n" + strings.Repeat("x", size)
	for range clients {
		send(t, address, request)
	}
	for range limit / size {
		<-full
	}
	<-time.After(100 * time.Millisecond)
	close(release)
	if _, err := io.ReadAll(send(t, address, request)); err != nil {
		t.Error(err)
	}
	if most.Load() > limit {
		t.Errorf("handlers had %d bytes together", most.Load())
	}
	if answered.Load() == 0 {
		t.Error("no request was answered")
	}
}

func TestRatesAreLimitedByAddress(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	rates := NewRates(10, 20)
	allowed := func(address string, times int) (n int) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = address
		for range times {
			if rates.Allow(now.Now(), r) {
				n++
			}
		}
		return n
	}
	if got := allowed("[2001:db8::1]:1", 100); got != 20 {
		t.Errorf("%d in a burst", got)
	}
	if got := allowed("[2001:db8::ffff:1]:2", 10); got != 0 {
		t.Errorf("%d more from the same network", got)
	}
	if got := allowed("[2001:db8:0:1::1]:1", 1); got != 1 {
		t.Error("another network waits for the first one")
	}
	now.SetTime(now.Now().Add(time.Second))
	if got := allowed("[2001:db8::1]:1", 100); got != 10 {
		t.Errorf("%d after a second", got)
	}
	for n := range 3 * maxAddresses {
		allowed(fmt.Sprintf("10.0.%d.%d:1", n/250, n%250), 1)
	}
	if rates.Size() > maxAddresses {
		t.Errorf("%d addresses are remembered", rates.Size())
	}
}
