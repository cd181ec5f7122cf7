package podport

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// newClient returns a client of port 9090 of a pod behind an API server that a test plays.
func newClient(t *testing.T, apiServer http.HandlerFunc) *http.Client {
	t.Helper()
	server := httptest.NewServer(apiServer)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL + "/api/v1/namespaces/gate/pods/replica/portforward")
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: Transport{Config: &rest.Config{Host: server.URL, BearerToken: "secret"}, Target: target, Port: 9090}}
}

// pass is an API server without WebSockets. It gives the requests at a port to a pod.
func pass(pod http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "no token", http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodGet {
			http.Error(w, "WebSockets are not known here", http.StatusBadRequest)
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
			return
		}
		streams := make(chan httpstream.Stream, 2)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error { streams <- s; return nil })
		if conn == nil {
			return
		}
		defer conn.Close()
		for {
			select {
			case s := <-streams:
				if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
					asked, err := http.ReadRequest(bufio.NewReader(s))
					if err != nil {
						return
					}
					asked.RemoteAddr = s.Headers().Get(corev1.PortHeader)
					answer := httptest.NewRecorder()
					pod(answer, asked)
					_ = answer.Result().Write(s)
					_ = s.Close()
				}
			case <-conn.CloseChan():
				return
			}
		}
	}
}

func TestRequestsReachThePortOfThePod(t *testing.T) {
	client := newClient(t, pass(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RemoteAddr+" "+r.Host+r.URL.String()+strings.Repeat(".", 1<<20))
	}))
	for range 2 {
		answer, err := client.Get("http://replica/usage?after=0")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || strings.TrimRight(string(body), ".") != "9090 replica/usage?after=0" || len(body) < 1<<20 {
			t.Errorf("%d, %d bytes: %.40q, %v", answer.StatusCode, len(body), body, err)
		}
	}
}

func TestARefusalIsQuoted(t *testing.T) {
	client := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/portforward"}, "replica", nil).Status()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		refusal.Kind, refusal.APIVersion = "Status", "v1"
		_ = json.NewEncoder(w).Encode(refusal)
	})
	answer, err := client.Get("http://replica/usage")
	if err == nil {
		_ = answer.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), `pods/portforward "replica" is forbidden`) {
		t.Errorf("%v", err)
	}
}

func TestWhatDoesNotAnswerEndsWithTheRequest(t *testing.T) {
	for name, apiServer := range map[string]http.HandlerFunc{
		"the API server": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"the pod":        pass(func(_ http.ResponseWriter, r *http.Request) { <-t.Context().Done() }),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		client := newClient(t, apiServer)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://replica/usage", nil)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			answer, err := client.Do(req)
			if err == nil {
				_ = answer.Body.Close()
			}
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: %v", name, errors.New("the request has not ended"))
		}
	}
}
