package gate

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A gate that is off is ready, reads nothing, and serves no metrics and no host.
func TestOffIsReady(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RunOff(ctx, Config{AdminBindAddress: address}, slog.New(slog.DiscardHandler)) }()
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusNotFound, "/served?host=a": http.StatusNotFound} {
		deadline := time.Now().Add(10 * time.Second)
		response, err := http.Get("http://" + address + path)
		for err != nil && time.Now().Before(deadline) { // until it listens
			response, err = http.Get("http://" + address + path)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s is answered with %d, want %d", path, response.StatusCode, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := RunOff(t.Context(), Config{AdminBindAddress: "256.0.0.1:1"}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "ADMIN_BIND_ADDRESS") {
		t.Errorf("an address that cannot be served: error %v", err)
	}
}
