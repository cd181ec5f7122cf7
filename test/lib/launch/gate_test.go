package launch

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
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
