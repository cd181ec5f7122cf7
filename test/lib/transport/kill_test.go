package transport

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestKill(t *testing.T) {
	for _, lost := range []bool{false, true} {
		reached := 0
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				reached++
			}
		}))
		defer server.Close()
		k := NewKill(2, lost, func(r *http.Request) bool { return !strings.Contains(r.URL.Path, "/events") })
		client := &http.Client{Transport: k.Wrap(http.DefaultTransport)}
		ask := func(method, path string) error {
			r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(r)
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		}
		for _, path := range []string{"/first", "/events"} {
			if err := ask(http.MethodPost, path); err != nil {
				t.Errorf("%s before the kill: %v", path, err)
			}
		}
		if err := ask(http.MethodGet, "/first"); err != nil {
			t.Errorf("a read before the kill: %v", err)
		}
		if err := ask(http.MethodPost, "/second"); err == nil {
			t.Error("the write at which it is killed has a response")
		}
		<-k.Dead
		if err := ask(http.MethodGet, "/first"); err == nil {
			t.Error("a read after the kill has a response")
		}
		if want := map[bool]int{false: 3, true: 2}[lost]; reached != want {
			t.Errorf("lost %t: %d writes reached the server, want %d", lost, reached, want)
		}
		if k.Writes() != 2 {
			t.Errorf("%d writes counted", k.Writes())
		}
	}
}
