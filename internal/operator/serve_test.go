package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/bergctf/berg-operator/internal/config"
)

// A webhook server answers, and ends clients that send no body: it keeps no connection for longer than a request.
func TestTheWebhookServerAnswersAmongStrangers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	certificate, key, err := certutil.GenerateSelfSignedCertKeyWithFixtures("localhost", nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	s := newWebhookServer(config.Process{WebhookBindAddress: address}, nil, logr.Discard())
	s.certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
	if s.ready(nil) != nil {
		t.Error("a server that need not answer is not ready")
	}
	s.open()
	if s.ready(nil) == nil {
		t.Error("a server is ready before it serves")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	for deadline := time.Now().Add(time.Minute); s.ready(nil) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("it does not serve")
		}
	}
	trusting := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}
	for range 100 {
		conn, err := tls.Dial("tcp", address, trusting)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if protocol := conn.ConnectionState().NegotiatedProtocol; protocol != "http/1.1" {
			t.Fatalf("it speaks %s", protocol)
		}
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}}
	for range 2 {
		const review = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","kind":{"version":"v1","kind":"Any"},"operation":"CREATE","object":{}}}`
		answer, err := client.Post("https://"+address+"/", "application/json", strings.NewReader(review))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || !answer.Close || !strings.Contains(string(text), `"allowed":true`) {
			t.Errorf("%s %s %v, Connection: close is %v", answer.Status, text, err, answer.Close)
		}
	}
	<-time.After(200 * time.Millisecond) // a server that stops waits for those that have just come
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestProbesReportChecks(t *testing.T) {
	filled := errors.New("not filled")
	all := checks{
		live:  map[string]healthz.Checker{"ping": healthz.Ping},
		ready: map[string]healthz.Checker{"caches": func(*http.Request) error { return filled }},
	}
	handler := all.handler()
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	for path, want := range map[string]int{"/healthz": 200, "/healthz/ping": 200, "/readyz": 500, "/": 404, "/metrics": 404} {
		if got, text := get(path); got != want {
			t.Errorf("%s: %d %s, want %d", path, got, text, want)
		}
	}
	if _, text := get("/readyz?verbose"); strings.Contains(text, "filled") {
		t.Errorf("the probe says why: %s", text)
	}
	filled = nil
	if got, text := get("/readyz"); got != 200 {
		t.Errorf("%d %s", got, text)
	}
}
