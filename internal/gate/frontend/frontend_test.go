package frontend

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/gate/follow"
	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/upstream"
)

// The ports of the Gateway in these tests.
const (
	plainPort  = 80
	securePort = 443
	rawPort    = 4443
)

// gate is a frontend with a Gateway of three listeners, without a cluster.
type gate struct {
	state     *follow.State
	endpoints *upstream.Endpoints
	addresses map[int32]string
	roots     *x509.CertPool
	// stop ends the frontend as the end of the process does; each of its three ports sends its result to ended.
	stop  func()
	ended chan error
	front *Frontend
}

func newGate(t *testing.T, options Options) *gate {
	t.Helper()
	table := routing.NewTable()
	g := &gate{
		state: follow.NewState(table, "test/gate", []int32{plainPort, securePort, rawPort}, nil), endpoints: upstream.NewEndpoints(),
		addresses: map[int32]string{}, roots: x509.NewCertPool(),
	}
	certificate := newCertificate(t, g.roots, "*.example")
	secret := types.NamespacedName{Namespace: "berg", Name: "certificate"}
	g.state.SetNamespace("berg", labels.Set{})
	g.state.SetClass(&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "test/gate"}})
	g.state.SetCertificate(secret, certificate, nil)
	ends := &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "certificate"}}}
	passes := &gatewayv1.ListenerTLSConfig{Mode: ptr.To(gatewayv1.TLSModePassthrough)}
	g.state.SetGateway(&gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "gateway", Generation: 1},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "gate", Listeners: []gatewayv1.Listener{
			{Name: "http", Port: plainPort, Protocol: gatewayv1.HTTPProtocolType},
			{Name: "https", Port: securePort, Protocol: gatewayv1.HTTPSProtocolType, TLS: ends},
			{Name: "raw", Port: rawPort, Protocol: gatewayv1.TLSProtocolType, Hostname: ptr.To(gatewayv1.Hostname("*.example")), TLS: ends},
			{Name: "through", Port: rawPort, Protocol: gatewayv1.TLSProtocolType, Hostname: ptr.To(gatewayv1.Hostname("through.example")), TLS: passes},
		}},
	})
	if options.Limits == (Limits{}) {
		options.Limits = Limits{Total: 100, Address: 100, Host: 100}
	}
	front, err := New(table, upstream.NewDialer(g.endpoints), options, NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	g.front = front
	ctx, cancel := context.WithCancel(context.Background())
	g.stop, g.ended = cancel, make(chan error, 3)
	for _, port := range []int32{plainPort, securePort, rawPort} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g.addresses[port] = listener.Addr().String()
		go func() { g.ended <- front.Serve(ctx, routing.Port{Number: port}, listener) }()
	}
	t.Cleanup(func() {
		cancel()
		for range 3 {
			if err := <-g.ended; err != nil {
				t.Error(err)
			}
		}
	})
	return g
}

func newCertificate(t *testing.T, roots *x509.CertPool, names ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// serve makes a Service whose only pod is at an address of the loopback.
func (g *gate) serve(t *testing.T, service, address string) {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	g.state.SetService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: service}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}})
	g.endpoints.Set(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Ports:      []discoveryv1.EndpointPort{{Port: ptr.To(int32(port))}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{host}, TargetRef: &corev1.ObjectReference{UID: types.UID("pod-" + service)}}},
	})
}

func backends(service string) []gatewayv1.BackendRef {
	return []gatewayv1.BackendRef{{BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(service), Port: ptr.To(gatewayv1.PortNumber(1))}}}
}

func (g *gate) routeHTTP(service, listener string, hosts ...gatewayv1.Hostname) {
	g.state.SetHTTPRoute(&gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: service + listener, Generation: 1},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gateway", SectionName: ptr.To(gatewayv1.SectionName(listener))}}},
			Hostnames:       hosts, Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: backends(service)[0]}}}},
		},
	})
}

func (g *gate) routeTLS(service string, host gatewayv1.Hostname) {
	g.state.SetTLSRoute(&gatewayv1.TLSRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: service, Generation: 1},
		Spec: gatewayv1.TLSRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gateway"}}},
			Hostnames:       []gatewayv1.Hostname{host}, Rules: []gatewayv1.TLSRouteRule{{BackendRefs: backends(service)}},
		},
	})
}

// client returns a client whose connections all go to a port of the gate.
func (g *gate) client(port int32, http2 bool) *http.Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, g.addresses[port])
		},
		TLSClientConfig: &tls.Config{RootCAs: g.roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: http2,
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func get(t *testing.T, client *http.Client, url string, headers ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body), answer.Header
}

func TestRequestsReachTheirInstance(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second, RedirectToHTTPS: true})
	for _, name := range []string{"one", "two"} {
		pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s for %s over %s by %s", name, r.Host, r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Forwarded-For"))
		}))
		t.Cleanup(pod.Close)
		g.serve(t, name, pod.Listener.Addr().String())
		g.routeHTTP(name, "https", gatewayv1.Hostname(name+".example"))
	}
	g.routeHTTP("one", "http", "plain.example")
	for _, http2 := range []bool{false, true} {
		secure := g.client(securePort, http2)
		for _, name := range []string{"one", "two", "one"} {
			if status, body, _ := get(t, secure, "https://"+name+".example/", "X-Forwarded-For", "192.0.2.1"); status != http.StatusOK || body != name+" for "+name+".example over https by 127.0.0.1" {
				t.Errorf("HTTP/2 %v: %d %q", http2, status, body)
			}
		}
		if status, _, _ := get(t, secure, "https://one.example/", "Host", "two.example"); status != http.StatusMisdirectedRequest {
			t.Errorf("a host that is not the server name: %d", status)
		}
	}
	plain := g.client(plainPort, false)
	if status, body, _ := get(t, plain, "http://plain.example/"); status != http.StatusOK || !strings.HasPrefix(body, "one for plain.example over http by") {
		t.Errorf("%d %q", status, body)
	}
	if status, _, header := get(t, plain, "http://two.example/a?b=c"); status != http.StatusPermanentRedirect || header.Get("Location") != "https://two.example/a?b=c" {
		t.Errorf("%d %q", status, header.Get("Location"))
	}
	if status, body, _ := get(t, plain, "http://never.example/"); status != http.StatusNotFound || !strings.Contains(body, "has ended") {
		t.Errorf("%d %q", status, body)
	}
}

func TestPlayersReadWhyNothingAnswers(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	g.state.SetService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "starting"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}})
	g.routeHTTP("starting", "http", "starting.example")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.serve(t, "silent", silent.Addr().String())
	_ = silent.Close()
	g.routeHTTP("silent", "http", "silent.example")
	client := g.client(plainPort, false)
	for host, want := range map[string]string{"starting.example": "is starting", "silent.example": "does not answer"} {
		status, body, header := get(t, client, "http://"+host+"/", "Accept", "text/html,*/*")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, want) || !strings.Contains(body, `http-equiv="refresh"`) || header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %q %v", host, status, body, header)
		}
		if status, body, _ := get(t, client, "http://"+host+"/"); status != http.StatusServiceUnavailable || strings.Contains(body, "<html") {
			t.Errorf("%s, a program: %d %q", host, status, body)
		}
	}
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ready") }))
	t.Cleanup(pod.Close)
	g.serve(t, "starting", pod.Listener.Addr().String())
	if status, body, _ := get(t, client, "http://starting.example/"); status != http.StatusOK || body != "ready" {
		t.Errorf("%d %q", status, body)
	}
	g.state.DeleteRoute(routing.Key{Kind: routing.HTTPRoute, Namespace: "berg", Name: "startinghttp"})
	if status, _, _ := get(t, client, "http://starting.example/"); status != http.StatusNotFound {
		t.Errorf("without a route: %d", status)
	}
}

// The operator of an instance knows why it does not run. Strange words are not repeated.
func TestPlayersReadTheCauseThatTheRouteNames(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	g.state.SetService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}})
	g.routeHTTP("web", "http", "web.example")
	route := func(cause string) {
		r := &gatewayv1.HTTPRoute{
			ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "webhttp", Generation: 1, Annotations: map[string]string{bergv1.AnnotationCause: cause}},
			Spec: gatewayv1.HTTPRouteSpec{
				CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gateway", SectionName: ptr.To(gatewayv1.SectionName("http"))}}},
				Hostnames:       []gatewayv1.Hostname{"web.example"}, Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: backends("web")[0]}}}},
			},
		}
		g.state.SetHTTPRoute(r)
	}
	client := g.client(plainPort, false)
	for cause, want := range map[string]string{
		string(bergv1.CauseCrashing): "a program in it fails", string(bergv1.CauseImageUnavailable): "its image is not available",
		string(bergv1.CauseQueued): "is starting", "<b>strange</b>": "is starting", "": "is starting",
	} {
		route(cause)
		status, body, header := get(t, client, "http://web.example/", "Accept", "text/html")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, want) || strings.Contains(body, "strange") || header.Get("Retry-After") == "" {
			t.Errorf("%q: %d %q", cause, status, body)
		}
	}
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ready") }))
	t.Cleanup(pod.Close)
	g.serve(t, "web", pod.Listener.Addr().String())
	route(string(bergv1.CauseCrashing))
	if status, body, _ := get(t, client, "http://web.example/"); status != http.StatusOK || body != "ready" {
		t.Errorf("a cause is named, and a pod answers: %d %q", status, body)
	}
	g.state.DeleteService(types.NamespacedName{Namespace: "berg", Name: "web"})
	if status, body, header := get(t, client, "http://web.example/"); status != http.StatusInternalServerError || !strings.Contains(body, "is incomplete") || header.Get("Retry-After") == "" {
		t.Errorf("without its Service: %d %q", status, body)
	}
}

// An instance that ends takes the connections of its players with it, also where its pod does not end.
func TestConnectionsEndWithTheirRoute(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	g.serve(t, "raw", echo(t, "raw", func(c net.Conn) net.Conn { return c }))
	g.routeTLS("raw", "raw.example")
	stream, err := tls.Dial("tcp", g.addresses[rawPort], &tls.Config{ServerName: "raw.example", RootCAs: g.roots, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	fmt.Fprintln(stream, "hello")
	answers := bufio.NewReader(stream)
	if line, err := answers.ReadString('\n'); line != "raw hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
	held := make(chan struct{})
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-held
	}))
	t.Cleanup(pod.Close)
	t.Cleanup(func() { close(held) })
	g.serve(t, "web", pod.Listener.Addr().String())
	g.routeHTTP("web", "http", "web.example")
	events, err := g.client(plainPort, false).Get("http://web.example/")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	if used := g.state.Usage.Report(time.Time{}).Hosts; len(used) != 2 || used[0].Open+used[1].Open != 2 || used[0].Bytes == 0 {
		t.Errorf("while both are open: %+v", used)
	}
	g.state.DeleteRoute(routing.Key{Kind: routing.TLSRoute, Namespace: "berg", Name: "raw"})
	if rest, err := io.ReadAll(answers); len(rest) > 0 {
		t.Errorf("the stream continues: %q, %v", rest, err)
	}
	g.state.DeleteRoute(routing.Key{Kind: routing.HTTPRoute, Namespace: "berg", Name: "webhttp"})
	if _, err := io.ReadAll(events.Body); err == nil {
		t.Error("an answer that was cut off seems complete")
	}
}

// Instances come and go, and their pods get the addresses of others, while players of all ask without a pause.
func TestPodsThatReplaceOthersGetNoRequestForThem(t *testing.T) {
	const instances, addresses, requests = 8, 4, 50
	g := newGate(t, Options{Drain: time.Second})
	name := func(n int) string { return fmt.Sprintf("i%d", n%instances) }
	start := func(owner, address string) *http.Server {
		listener, err := net.Listen("tcp", address)
		for err != nil { // the port may serve as the source of a connection for a moment
			listener, err = net.Listen("tcp", "127.0.0.1:0")
		}
		pod := &http.Server{Addr: listener.Addr().String(), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, owner) })}
		go func() { _ = pod.Serve(listener) }()
		return pod
	}
	ctx, cancel := context.WithCancel(t.Context())
	var churn, players sync.WaitGroup
	churn.Go(func() {
		pods := make([]*http.Server, addresses)
		for n := 0; ctx.Err() == nil; n++ {
			next, address := name(n), "127.0.0.1:0"
			if pod := pods[n%addresses]; pod != nil {
				former := name(n - addresses)
				g.state.DeleteRoute(routing.Key{Kind: routing.HTTPRoute, Namespace: "berg", Name: former + "http"})
				g.endpoints.Delete(types.NamespacedName{Namespace: "berg", Name: former})
				address = pod.Addr
				_ = pod.Close()
			}
			pods[n%addresses] = start(next, address)
			g.serve(t, next, pods[n%addresses].Addr)
			g.routeHTTP(next, "http", gatewayv1.Hostname(next+".example"))
		}
		for _, pod := range pods {
			_ = pod.Close()
		}
	})
	var wrong, served atomic.Int64
	for n := range instances {
		players.Go(func() {
			client := g.client(plainPort, false)
			// A pod lives for less than a millisecond: all requests may come too late for one.
			for sent := 0; sent < requests || served.Load() == 0 && sent < 100*requests; sent++ {
				answer, err := client.Get("http://" + name(n) + ".example/")
				if err != nil {
					continue // cut off with its route
				}
				body, err := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				if err == nil && answer.StatusCode == http.StatusOK {
					served.Add(1)
					if string(body) != name(n) {
						wrong.Add(1)
					}
				}
			}
		})
	}
	players.Wait()
	cancel()
	churn.Wait()
	if wrong.Load() > 0 || served.Load() == 0 {
		t.Errorf("%d of %d answers are of another instance", wrong.Load(), served.Load())
	}
}

// echo is a TCP server that answers each line with a name in front of it.
func echo(t *testing.T, name string, wrap func(net.Conn) net.Conn) string {
	t.Helper()
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
			go func() {
				defer conn.Close()
				conn := wrap(conn)
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintln(conn, name, lines.Text())
				}
				fmt.Fprintln(conn, name, "ended")
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func TestStreamsWithinTLS(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	g.serve(t, "raw", echo(t, "raw", func(c net.Conn) net.Conn { return c }))
	g.routeTLS("raw", "raw.example")
	own := newCertificate(t, g.roots, "through.example")
	g.serve(t, "through", echo(t, "through", func(c net.Conn) net.Conn {
		return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*own}, MinVersion: tls.VersionTLS12})
	}))
	g.routeTLS("through", "through.example")
	g.routeTLS("gone", "gone.example")
	g.state.SetService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "gone"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}})
	for _, name := range []string{"raw", "through"} {
		conn, err := tls.Dial("tcp", g.addresses[rawPort], &tls.Config{ServerName: name + ".example", RootCAs: g.roots, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(name, err)
		}
		fmt.Fprintln(conn, "hello")
		answers := bufio.NewReader(conn)
		if line, err := answers.ReadString('\n'); line != name+" hello\n" {
			t.Errorf("%q, %v", line, err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Error(err)
		}
		if rest, err := io.ReadAll(answers); string(rest) != name+" ended\n" {
			t.Errorf("after the client ended: %q, %v", rest, err)
		}
		_ = conn.Close()
	}
	for name, alert := range map[string]bool{"never.other": false, "gone.example": true, "never.example": false} {
		_, err := tls.Dial("tcp", g.addresses[rawPort], &tls.Config{ServerName: name, RootCAs: g.roots, MinVersion: tls.VersionTLS12})
		var got *net.OpError
		if err == nil || alert != (errors.As(err, &got) && got.Err.Error() == tls.AlertError(80).Error()) {
			t.Errorf("%s: %v, want an alert: %v", name, err, alert)
		}
	}
}
