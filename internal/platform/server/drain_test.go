package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// While nodes still send new connections to a replica that stops, each call is answered, and no connection is kept. An answer that has
// begun is given.
func TestAReplicaThatStopsLosesNoCall(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	s := &Server{clock: clock, synced: make(chan struct{})}
	close(s.synced)
	begun, finish := make(chan struct{}), make(chan struct{})
	api := &http.Server{Handler: s.drain.closing(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-finish
		}
	})), ReadHeaderTimeout: time.Minute}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- api.Serve(listener) }()
	call := func(path string, transport *http.Transport) (closes bool, err error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			return false, err
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.Close, err
	}
	kept := &http.Transport{}
	if closes, err := call("/", kept); err != nil || closes || !s.Ready() {
		t.Fatalf("before: closes %t, ready %t, %v", closes, s.Ready(), err)
	}
	drained := make(chan struct{})
	go func() {
		s.drain.stop(api, clock, time.Minute)
		close(drained)
	}()
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	if s.Ready() {
		t.Error("it is ready while it stops")
	}
	for n := range 10 {
		if closes, err := call("/", &http.Transport{}); err != nil || !closes {
			t.Fatalf("new connection %d: closes %t, %v", n, closes, err)
		}
	}
	if closes, err := call("/", kept); err != nil || !closes {
		t.Errorf("an old connection: closes %t, %v", closes, err)
	}
	slow := make(chan error, 1)
	go func() {
		_, err := call("/slow", &http.Transport{})
		slow <- err
	}()
	<-begun
	clock.Step(drainDelay)
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	close(finish)
	<-drained
	if err := <-slow; err != nil {
		t.Errorf("a started answer was lost: %v", err)
	}
	if _, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", listener.Addr().String()); err == nil {
		t.Error("it still accepts connections")
	}
}
