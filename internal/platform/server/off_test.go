package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
)

// freeAddress is one on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// Without any right and any cluster it is ready, and says what to do.
func TestOffIsReadyAndSaysSo(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	config := Config{BindAddress: freeAddress(t), MetricsBindAddress: freeAddress(t)}
	listening, ended := make(chan struct{}, 1), make(chan error, 1)
	log := slog.New(slog.NewTextHandler(writerFunc(func([]byte) { listening <- struct{}{} }), nil))
	go func() { ended <- RunOff(ctx, config, log) }()
	select {
	case <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	for _, c := range []struct {
		url    string
		status int
		body   string
	}{
		{"http://" + config.MetricsBindAddress + "/readyz", http.StatusOK, ""},
		{"http://" + config.MetricsBindAddress + "/healthz", http.StatusOK, ""},
		{"http://" + config.MetricsBindAddress + "/metrics", http.StatusOK, ""},
		{"http://" + config.BindAddress + "/api/v1/challenge", http.StatusServiceUnavailable, "PLATFORM_API=true"},
		{"http://" + config.BindAddress + "/live/", http.StatusServiceUnavailable, "PLATFORM_API=true"},
	} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != c.status || !strings.Contains(string(body), c.body) {
			t.Errorf("%s: %d %s %v", c.url, answer.StatusCode, body, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestOffSaysWhichAddressIsTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	config := Config{BindAddress: "127.0.0.1:0", MetricsBindAddress: listener.Addr().String()}
	if err := RunOff(t.Context(), config, slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "METRICS_BIND_ADDRESS: ") {
		t.Error(err)
	}
}

// writerFunc is called with each line that is written.
type writerFunc func([]byte)

func (f writerFunc) Write(line []byte) (int, error) {
	f(line)
	return len(line), nil
}
