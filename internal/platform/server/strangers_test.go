package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
)

// serving is an API that runs with its own ports and without a cluster: its answers to tokens need none.
type serving struct {
	testing.TB
	address string
	log     *lockedBuffer
}

// lockedBuffer is a log that is written and read concurrently.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

const (
	ctfdToken = "token-of-ctfd-0123456789"
	rctfToken = "token-of-rctf-0123456789"
)

// emptyCluster names its kinds, and has no object.
func emptyCluster(t *testing.T) (url string) {
	resources := map[string]string{
		"/api/v1": "ConfigMap Secret Event Node", "/apis/berg.norelect.ch/v1": "Challenge ChallengeCheck ChallengeInstance ChallengeInstanceRecord",
		"/apis/apps/v1": "Deployment", "/apis/coordination.k8s.io/v1": "Lease",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch kinds := resources[r.URL.Path]; {
		case kinds != "":
			list := metav1.APIResourceList{GroupVersion: strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/")}
			for kind := range strings.FieldsSeq(kinds) {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: kind != "Node", Verbs: metav1.Verbs{"list"}})
			}
			_ = json.NewEncoder(w).Encode(list)
		case r.URL.Path == "/api":
			_ = json.NewEncoder(w).Encode(metav1.APIVersions{Versions: []string{"v1"}})
		case r.URL.Path == "/apis":
			var list metav1.APIGroupList
			for _, group := range []string{"apps", "berg.norelect.ch", "coordination.k8s.io"} {
				version := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1", Version: "v1"}
				list.Groups = append(list.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
			}
			_ = json.NewEncoder(w).Encode(list)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func startAPI(t *testing.T, env map[string]string) serving {
	t.Helper()
	s := serving{t, freeAddress(t), &lockedBuffer{}}
	all := map[string]string{"BIND_ADDRESS": s.address, "METRICS_BIND_ADDRESS": freeAddress(t)}
	for name, value := range env {
		all[name] = value
	}
	var config Config
	if _, err := settings.Load("", []settings.Section{config.Section()}, nil, func(name string) string { return all[name] }, io.Discard); err != nil {
		t.Fatal(err)
	}
	api, err := New(&rest.Config{Host: emptyCluster(t)}, config, clock.RealClock{}, slog.New(slog.NewTextHandler(s.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	set, err := tokens.Parse(map[string][]byte{
		"ctfd": []byte("endpoint: chall-manager\ntoken: " + ctfdToken), "rctf": []byte("endpoint: rctf\ntoken: " + rctfToken),
	}, "berg", []string{"berg"})
	if err != nil {
		t.Fatal(err)
	}
	api.tokens.Replace(set)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- api.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = conn.Close()
			return s
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// ask sends a request on a new connection.
func (s serving) ask(token string) (int, string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.address+"/healthcheck", nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// send opens a connection for a request that is not complete.
func (s serving) send(request string) net.Conn {
	s.Helper()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, request) // it may be closed already
	return conn
}

func TestRequestsWithoutABodyDoNotTakeThePortAway(t *testing.T) {
	for name, request := range map[string]string{
		"without a token":     "POST /api/v1/instance HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"a token in the body": "PUT /v1/instances/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
		"without a word":      "",
	} {
		t.Run(name, func(t *testing.T) {
			s := startAPI(t, map[string]string{"MAX_CONNECTIONS": "32"})
			first := s.send(request)
			for range 200 {
				s.send(request)
			}
			for range 5 {
				if status, text := s.ask(ctfdToken); status != http.StatusOK {
					t.Errorf("%d %s", status, text)
				}
			}
			if _, err := io.ReadAll(first); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the first connection is not ended: %v", err)
			}
		})
	}
}

// A call that reads no body waits for it, too, and not for longer than the port allows.
func TestARightTokenDoesNotHoldAConnectionWithoutABody(t *testing.T) {
	t.Parallel()
	s := startAPI(t, nil)
	conn := s.send("GET /healthcheck HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + ctfdToken + "\r\nContent-Length: 1000\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusRequestTimeout || !answer.Close {
		t.Errorf("%s, Connection: close is %v", answer.Status, answer.Close)
	}
}

// A platform keeps its connections, however many strangers come and however long it sends nothing.
func TestAConnectionWithARightTokenStays(t *testing.T) {
	s := startAPI(t, map[string]string{"MAX_CONNECTIONS": "32"})
	const request = "GET /healthcheck HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + ctfdToken + "\r\n\r\n"
	conn := s.send(request)
	lines := bufio.NewReader(conn)
	for range 5 {
		answer, err := http.ReadResponse(lines, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s %v", answer.Status, err)
		}
		_ = answer.Body.Close()
		for range 50 {
			s.send("")
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWrongTokensHaveARateOfTheirOwn(t *testing.T) {
	s := startAPI(t, map[string]string{"RATE": "2"})
	unknownStatus, unknown := s.ask("token-that-nothing-has")
	elsewhereStatus, elsewhere := s.ask(rctfToken)
	if unknownStatus != http.StatusUnauthorized || elsewhereStatus != http.StatusUnauthorized || unknown != elsewhere {
		t.Errorf("%d %s, and for a token of another endpoint %d %s", unknownStatus, unknown, elsewhereStatus, elsewhere)
	}
	if log := s.log.String(); !strings.Contains(log, "key=rctf") || strings.Contains(log, rctfToken) {
		t.Errorf("the log must name the key, and not the token: %s", log)
	}
	limited := 0
	for range 2 * wrongTokensBurst {
		if status, _ := s.ask("token-that-nothing-has"); status == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited == 0 {
		t.Error("wrong tokens have no limit")
	}
	if status, text := s.ask(ctfdToken); status != http.StatusOK {
		t.Errorf("a right token waits for wrong ones: %d %s", status, text)
	}
}
