package frontend

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/follow"
	"github.com/bergctf/berg-operator/test/lib/strangers"
)

// startPod starts an HTTP server, with HTTP/2 without TLS, too, and returns its address.
func startPod(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	pod := httptest.NewUnstartedServer(handler)
	pod.Config.Protocols = new(http.Protocols)
	pod.Config.Protocols.SetHTTP1(true)
	pod.Config.Protocols.SetUnencryptedHTTP2(true)
	pod.Start()
	t.Cleanup(pod.Close)
	return pod.Listener.Addr().String()
}

// speak sets the appProtocol of a Service's port.
func (g *gate) speak(service, protocol string) {
	g.state.SetService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: service}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1, AppProtocol: ptr.To(protocol)}}},
	})
}

// dialTLS connects to a TLS port for a server name.
func (g *gate) dialTLS(t *testing.T, port int32, name string, protocols ...string) *tls.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", g.addresses[port], &tls.Config{ServerName: name, RootCAs: g.roots, MinVersion: tls.VersionTLS12, NextProtos: protocols})
	if err != nil {
		t.Fatal(name, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestStreamsOfRequestsPassInBothDirections(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	// It answers each line as soon as it arrives, and has a trailer, as gRPC does.
	address := startPod(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			fmt.Fprintln(w, r.Proto, lines.Text(), r.Header.Get("Te"))
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	})
	g.serve(t, "grpc", address)
	g.speak("grpc", "kubernetes.io/h2c")
	g.routeHTTP("grpc", "https", "grpc.example")
	body, lines := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://grpc.example/service/Method", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	answer, err := g.client(securePort, true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	answers := bufio.NewReader(answer.Body)
	for _, word := range []string{"first", "second"} {
		fmt.Fprintln(lines, word)
		if line, err := answers.ReadString('\n'); line != "HTTP/2.0 "+word+" trailers\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	_ = lines.Close()
	if _, err := io.Copy(io.Discard, answers); err != nil || answer.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("trailer %v, %v", answer.Trailer, err)
	}
}

func TestEventsArriveWhenTheyAreSent(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	next := make(chan struct{})
	g.serve(t, "events", startPod(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
		case "/length":
			w.Header().Set("Content-Length", "27")
		}
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next // the following event is sent only after this one was read
		}
	}))
	g.routeHTTP("events", "https", "events.example")
	for _, url := range []string{"https://events.example/events", "https://events.example/chunks", "https://events.example/length"} {
		for _, http2 := range []bool{false, true} {
			answer, err := g.client(securePort, http2).Get(url)
			if err != nil {
				t.Fatal(err)
			}
			events := bufio.NewReader(answer.Body)
			for i := range 3 {
				if line, err := events.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
					t.Fatalf("%s: %q, %v", url, line, err)
				}
				_, _ = events.ReadString('\n')
				next <- struct{}{}
			}
			_ = answer.Body.Close()
		}
	}
}

// heard counts the TLS records that it reads.
type heard struct {
	net.Conn
	left    int // bytes of the record that is being read
	records int
	header  []byte
}

// Read reads, and counts the headers of records.
func (h *heard) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	for _, each := range b[:n] {
		if h.left > 0 {
			h.left--
			continue
		}
		if h.header = append(h.header, each); len(h.header) == 5 {
			h.left = int(h.header[3])<<8 | int(h.header[4])
			h.header = h.header[:0]
			h.records++
		}
	}
	return n, err
}

// Two records are two writes, two wake-ups of the client, and nearly twice the time that the gate adds.
func TestASmallAnswerIsOneRecord(t *testing.T) {
	const requests = 50
	g := newGate(t, Options{Drain: time.Second})
	g.serve(t, "one", startPod(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	g.routeHTTP("one", "https", "one.example")
	raw := &heard{Conn: g.dialFrom(t, securePort, 1)}
	conn := tls.Client(raw, &tls.Config{ServerName: "one.example", RootCAs: g.roots, MinVersion: tls.VersionTLS12})
	answers := bufio.NewReader(conn)
	before := 0
	for i := range requests + 1 {
		if i == 1 { // the first answer follows those of the handshake
			before = raw.records
		}
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: one.example\r\n\r\n")
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if string(body) != "served" {
			t.Fatalf("%q, %v", body, err)
		}
	}
	if got := raw.records - before; got > requests*3/2 { // a busy machine may hold some back for too long
		t.Errorf("%d answers came in %d records", requests, got)
	}
}

// upgrade asks for a WebSocket, and returns the connection after the answer.
func upgrade(t *testing.T, conn net.Conn, host string) *bufio.Reader {
	t.Helper()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n",
		host, base64.StdEncoding.EncodeToString(make([]byte, 16)))
	answers := bufio.NewReader(conn)
	answer, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(answer.Status)
	}
	return answers
}

// echoUpgraded is a pod that answers each line of an upgraded connection.
func echoUpgraded(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "websocket")
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		line, err := buffered.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprint(conn, "echo ", line)
	}
}

func TestWebSocketsOutliveTheDrainOfRequests(t *testing.T) {
	g := newGate(t, Options{Drain: time.Minute})
	g.serve(t, "socket", startPod(t, echoUpgraded))
	g.serve(t, "raw", echo(t, "raw", func(c net.Conn) net.Conn { return c }))
	g.routeHTTP("socket", "https", "socket.example")
	g.routeTLS("raw", "raw.example")
	conn, stream := g.dialTLS(t, securePort, "socket.example"), g.dialTLS(t, rawPort, "raw.example")
	answers, lines := upgrade(t, conn, "socket.example"), bufio.NewReader(stream)
	ask := func(when string) {
		t.Helper()
		fmt.Fprintln(conn, when)
		if line, err := answers.ReadString('\n'); line != "echo "+when+"\n" {
			t.Errorf("WebSocket: %q, %v", line, err)
		}
		fmt.Fprintln(stream, when)
		if line, err := lines.ReadString('\n'); line != "raw "+when+"\n" {
			t.Errorf("stream: %q, %v", line, err)
		}
	}
	ask("before")
	idle := g.dialTLS(t, securePort, "socket.example")
	fmt.Fprint(idle, "GET / HTTP/1.1\r\nHost: never.example\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(idle), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusMisdirectedRequest {
		t.Fatal(answer.Status)
	}
	g.stop()
	if _, err := io.Copy(io.Discard, idle); err != nil {
		t.Errorf("an idle connection: %v", err)
	}
	if late, err := net.Dial("tcp", g.addresses[securePort]); err == nil {
		t.Error("a new connection was accepted")
		_ = late.Close()
	}
	ask("while the gate ends")
	if len(g.ended) > 1 { // the port without a connection
		t.Error("the gate has ended before its streams")
	}
	_ = conn.Close()
	_ = stream.Close()
}

func TestIdleConnectionsOfPodsStay(t *testing.T) {
	t.Parallel()
	g := newGate(t, Options{Drain: time.Second})
	g.serve(t, "socket", startPod(t, echoUpgraded))
	g.serve(t, "raw", echo(t, "raw", func(c net.Conn) net.Conn { return c }))
	g.routeHTTP("socket", "https", "socket.example")
	g.routeTLS("raw", "raw.example")
	conn, stream := g.dialTLS(t, securePort, "socket.example"), g.dialTLS(t, rawPort, "raw.example")
	answers, lines := upgrade(t, conn, "socket.example"), bufio.NewReader(stream)
	fmt.Fprintln(stream, "first")
	_, _ = lines.ReadString('\n')
	<-time.After(max(handshakeTime, headerTime) + time.Second) // no time of a connection's beginning may end it
	fmt.Fprintln(conn, "later")
	if line, err := answers.ReadString('\n'); line != "echo later\n" {
		t.Errorf("WebSocket: %q, %v", line, err)
	}
	fmt.Fprintln(stream, "later")
	if line, err := lines.ReadString('\n'); line != "raw later\n" {
		t.Errorf("stream: %q, %v", line, err)
	}
}

func TestDrainHasAnEnd(t *testing.T) {
	g := newGate(t, Options{Drain: 50 * time.Millisecond})
	g.serve(t, "socket", startPod(t, echoUpgraded))
	g.routeHTTP("socket", "https", "socket.example")
	upgrade(t, g.dialTLS(t, securePort, "socket.example"), "socket.example")
	g.stop()
	for range 3 {
		if err := <-g.ended; err != nil {
			t.Error(err)
		}
	}
	g.ended <- nil
	g.ended <- nil
	g.ended <- nil
}

func TestPodsLearnAddressesByTheProxyProtocol(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pod := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })}
	go func() {
		_ = pod.Serve(&proxyproto.Listener{Listener: listener, ConnPolicy: func(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) { return proxyproto.REQUIRE, nil }})
	}()
	t.Cleanup(func() { _ = pod.Close() })
	g.serve(t, "proxied", listener.Addr().String())
	g.speak("proxied", follow.ProxyProtocol)
	g.routeHTTP("proxied", "https", "proxied.example")
	g.routeTLS("proxied", "proxied.example")
	var asked []string
	client := g.client(securePort, false)
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 3, 0, byte(len(asked)+1))}}).DialContext(ctx, network, g.addresses[securePort])
		if err == nil {
			asked = append(asked, conn.LocalAddr().String())
		}
		return conn, err
	}
	client.Transport.(*http.Transport).DisableKeepAlives = true
	for i := range 3 {
		if status, body, _ := get(t, client, "https://proxied.example/"); status != http.StatusOK || body != asked[i] {
			t.Errorf("%d %q, want %q", status, body, asked[i])
		}
	}
	stream := g.dialTLS(t, rawPort, "proxied.example")
	fmt.Fprint(stream, "GET / HTTP/1.0\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(stream), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); string(body) != stream.LocalAddr().String() {
		t.Errorf("stream: %q, want %q; %v", body, stream.LocalAddr(), err)
	}
}

func TestABodyReachesThePodThatAccepts(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	address := startPod(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	g.serve(t, "pair", address)
	dead, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := net.SplitHostPort(dead.Addr().String())
	_ = dead.Close()
	var port int32
	fmt.Sscan(text, &port)
	g.endpoints.Set(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "dead", Labels: map[string]string{discoveryv1.LabelServiceName: "pair"}},
		Ports:      []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.2"}, TargetRef: &corev1.ObjectReference{UID: types.UID("dead")}}},
	})
	g.routeHTTP("pair", "https", "pair.example")
	client := g.client(securePort, true)
	for range 20 { // the order of the pods is random
		answer, err := client.Post("https://pair.example/", "text/plain", struct{ io.Reader }{strings.NewReader("hello")})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK || string(body) != "hello" {
			t.Fatalf("%d %q, %v", answer.StatusCode, body, err)
		}
	}
}

// recordingPod notes the requests that it gets, as host and path.
type recordingPod struct {
	mu  sync.Mutex
	got []string
}

func (p *recordingPod) handle(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, r.Host+r.URL.Path+"="+string(body))
	fmt.Fprint(w, r.Host)
}

func TestNoRequestReachesAnotherInstance(t *testing.T) {
	for name, c := range strangers.Confusions("one.example", "two.example") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, Options{Drain: time.Second})
			var one, two recordingPod
			g.serve(t, "one", startPod(t, one.handle))
			g.serve(t, "two", startPod(t, two.handle))
			g.routeHTTP("one", "https", "one.example")
			g.routeHTTP("two", "https", "two.example")
			conn := g.dialTLS(t, securePort, "one.example")
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.WriteString(conn, c.Sent); err != nil {
				t.Fatal(err)
			}
			answers := bufio.NewReader(conn)
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, answer.Body) // the last chunk may be missing
			_ = answer.Body.Close()
			_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond)) // for a second request, if there is one
			_, _ = io.Copy(io.Discard, answers)
			one.mu.Lock()
			defer one.mu.Unlock()
			two.mu.Lock()
			defer two.mu.Unlock()
			if len(two.got) > 0 {
				t.Errorf("the other instance got %q", two.got)
			}
			served := slices.DeleteFunc(slices.Clone(one.got), func(s string) bool { return slices.Contains(c.Served, s) })
			if len(served) > 0 || strings.HasPrefix(c.Sent, "GET") && len(one.got) < len(c.Served) {
				t.Errorf("the instance got %q, want %q", one.got, c.Served)
			}
		})
	}
}

func TestAuthorityAndServerNameAgree(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	var one, two recordingPod
	g.serve(t, "one", startPod(t, one.handle))
	g.serve(t, "two", startPod(t, two.handle))
	g.routeHTTP("one", "https", "one.example")
	g.routeHTTP("two", "https", "two.example")
	// A browser that uses one connection for all hosts of a wildcard certificate.
	pooled := g.client(securePort, true)
	transport := pooled.Transport.(*http.Transport)
	transport.TLSClientConfig.ServerName = "one.example"
	if status, body, _ := get(t, pooled, "https://one.example/"); status != http.StatusOK || body != "one.example" {
		t.Errorf("%d %q", status, body)
	}
	if status, _, _ := get(t, pooled, "https://one.example/", "Host", "two.example"); status != http.StatusMisdirectedRequest {
		t.Errorf("another :authority: %d", status)
	}
	if len(two.got) > 0 {
		t.Errorf("the other instance got %q", two.got)
	}
}

func TestClientsCannotClaimAddresses(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	g.serve(t, "one", startPod(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			fmt.Fprintf(w, "%s=%q ", name, r.Header.Values(name))
		}
	}))
	g.routeHTTP("one", "https", "one.example")
	_, body, _ := get(t, g.client(securePort, false), "https://one.example/", "Forwarded", "for=192.0.2.1", "X-Forwarded-For", "192.0.2.1",
		"X-Forwarded-Host", "two.example", "Connection", "X-Forwarded-For, X-Forwarded-Proto")
	if want := `Forwarded=[] X-Forwarded-For=["127.0.0.1"] X-Forwarded-Host=["one.example"] X-Forwarded-Proto=["https"] `; body != want {
		t.Errorf("%s, want %s", body, want)
	}
}

func TestConnectionsResumeTLS(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	g.serve(t, "one", startPod(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "one") }))
	g.routeHTTP("one", "https", "one.example")
	client := g.client(securePort, false)
	transport := client.Transport.(*http.Transport)
	transport.DisableKeepAlives, transport.TLSClientConfig.ClientSessionCache = true, tls.NewLRUClientSessionCache(4)
	for i := range 3 {
		answer, err := client.Get("https://one.example/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if i > 0 && !answer.TLS.DidResume {
			t.Error("the session was not resumed")
		}
	}
}

func TestLargeStreamsArriveWhole(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	content := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	g.serve(t, "raw", listener.Addr().String())
	g.routeTLS("raw", gatewayv1.Hostname("raw.example"))
	conn := g.dialTLS(t, rawPort, "raw.example")
	go func() {
		_, _ = conn.Write(content)
		_ = conn.CloseWrite()
	}()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, want %d; %v", len(got), len(content), err)
	}
}
