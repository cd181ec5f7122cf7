package launch

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// api answers with the request and its user.
func api(t *testing.T) *rest.Config {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s by %q", r.Method, r.URL.Path, r.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: authority}}
}

func gate(t *testing.T, wraps ...func(http.Handler) http.Handler) *Gate {
	t.Helper()
	g, err := NewGate(api(t), wraps...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// ask returns the answer, or the error.
func ask(g *Gate, method, path string) string {
	request, err := http.NewRequest(method, g.Config().Host+path, nil)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body := make([]byte, 1000)
	n, _ := response.Body.Read(body)
	return string(body[:n])
}

func TestGatePassesRequestsAndNotesWrites(t *testing.T) {
	g := gate(t)
	if got, want := ask(g, http.MethodGet, "/api"), `GET /api by "Bearer secret"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := g.Writes(time.Time{}); len(got) != 0 {
		t.Errorf("a read is a write: %v", got)
	}
	ask(g, http.MethodPost, "/one")
	between := time.Now()
	ask(g, http.MethodDelete, "/two")
	if got := g.Writes(time.Time{}); len(got) != 2 || got[0].Path != "/one" || got[0].Method != http.MethodPost {
		t.Errorf("got %v", got)
	}
	if got := g.Writes(between); len(got) != 1 || got[0].Path != "/two" {
		t.Errorf("got %v", got)
	}
}

func TestGateThatIsShut(t *testing.T) {
	wrapped := 0
	g := gate(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wrapped++
			next.ServeHTTP(w, r)
		})
	})
	g.SetShut(true)
	if got := ask(g, http.MethodPost, "/"); !strings.Contains(got, "EOF") {
		t.Errorf("got %s", got)
	}
	if len(g.Writes(time.Time{})) != 0 || wrapped != 0 {
		t.Error("what was cut off came through")
	}
	g.SetShut(false)
	if got := ask(g, http.MethodPost, "/"); !strings.HasPrefix(got, "POST / ") || wrapped != 1 {
		t.Errorf("got %s after %d requests", got, wrapped)
	}
}

func TestGateHoldsUpOneRequest(t *testing.T) {
	g := gate(t)
	held, release := g.HoldUp(func(r *http.Request) bool { return r.URL.Path == "/slow" })
	answered := make(chan string)
	go func() { answered <- ask(g, http.MethodGet, "/slow") }()
	<-held
	for _, path := range []string{"/other", "/slow"} { // only the first one waits
		if got := ask(g, http.MethodGet, path); !strings.HasPrefix(got, "GET "+path) {
			t.Errorf("got %s", got)
		}
	}
	select {
	case got := <-answered:
		t.Errorf("it was not held up: %s", got)
	default:
	}
	release()
	release()
	if got := <-answered; !strings.HasPrefix(got, "GET /slow") {
		t.Errorf("got %s", got)
	}
}

func TestGateClosesWhileItHoldsUpARequest(t *testing.T) {
	g := gate(t)
	held, _ := g.HoldUp(func(*http.Request) bool { return true })
	answered := make(chan string)
	go func() { answered <- ask(g, http.MethodGet, "/") }()
	<-held
	g.Close()
	if got := <-answered; !strings.Contains(got, "EOF") {
		t.Errorf("got %s", got)
	}
}

func TestKubeconfigLeadsToTheSameServer(t *testing.T) {
	want := api(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := WriteKubeconfig(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != want.Host || got.BearerToken != want.BearerToken || string(got.CAData) != string(want.CAData) {
		t.Errorf("got %v, want %v", got, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v: it holds a token", info.Mode(), err)
	}
}

func TestAccountOfAToken(t *testing.T) {
	admin := api(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/here/serviceaccounts/operator/token" || r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":"of the operator"}}`)
	}))
	defer server.Close()
	admin.Host, admin.TLSClientConfig = server.URL, rest.TLSClientConfig{}
	account, err := Account(t.Context(), admin, "here", "operator")
	if err != nil {
		t.Fatal(err)
	}
	if account.BearerToken != "of the operator" || account.Host != admin.Host || account.QPS != -1 {
		t.Errorf("got %v", account)
	}
	if _, err := Token(t.Context(), admin, "here", "missing"); err == nil {
		t.Error("there is no error for an account that does not exist")
	}
}
