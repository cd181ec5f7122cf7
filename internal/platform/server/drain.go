package server

import (
	"context"
	"net/http"
	"time"
)

const (
	// drainDelay is how long a replica that stops still accepts connections: nodes and Gateways send new ones until they know
	// that it is not ready.
	drainDelay = 5 * time.Second
	// drainExtra is added to BOOT_WAIT when a shutdown waits for answers, because an answer may take the whole BOOT_WAIT.
	drainExtra = 5 * time.Second
)

// drain stops a server without losing a call. It reports that the replica is not ready, serves for drainDelay, then accepts no new
// connection, and waits for started answers, at most for BOOT_WAIT and drainExtra. Streams do not end by themselves and are then
// closed.
func (s *Server) drain(api *http.Server) {
	s.draining.Store(true)
	<-s.clock.After(drainDelay)
	ctx, stop := context.WithTimeout(context.Background(), s.config.BootWait+drainExtra)
	defer stop()
	if err := api.Shutdown(ctx); err != nil {
		_ = api.Close()
	}
}

// closing ends each connection after its answer while the replica drains, so that the client makes the next one to another replica.
func (s *Server) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
