package server

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// drainDelay is how long a replica that stops still accepts connections: nodes and Gateways send new ones until they know
	// that it is not ready.
	drainDelay = 5 * time.Second
	// drainExtra is added to BOOT_WAIT when a shutdown waits for answers, because an answer may take the whole BOOT_WAIT.
	drainExtra = 5 * time.Second
)

// drain is whether a replica stops. Its zero value: it does not.
type drain struct{ begun atomic.Bool }

// stop ends a server without losing a call. The replica is not ready from now on. It serves for drainDelay, then accepts no new
// connection, and waits for started answers, at most for bootWait and drainExtra. Streams do not end by themselves and are then closed.
func (d *drain) stop(api *http.Server, clock clock.Clock, bootWait time.Duration) {
	d.begun.Store(true)
	<-clock.After(drainDelay)
	ctx, stop := context.WithTimeout(context.Background(), bootWait+drainExtra)
	defer stop()
	if err := api.Shutdown(ctx); err != nil {
		_ = api.Close()
	}
}

// closing ends each connection after its answer while the replica stops, so that the client makes the next one to another
// replica. A stream keeps its connection.
func (d *drain) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.begun.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
