package gate

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/upstream"
)

// Served is the answer of a replica to the question whether players reach a host through it.
type Served struct {
	// Host: a route of the host is served. Pod: a pod behind it accepted a connection. No byte was sent to it.
	Host bool `json:"host"`
	Pod  bool `json:"pod"`
}

// adminHandler serves metrics, health, and GET /served?host=NAME, which answers with Served.
func adminHandler(table *routing.Table, dialer *upstream.Dialer, synced []toolscache.InformerSynced) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		for _, done := range synced {
			if !done() {
				http.Error(w, "the routes are not read yet", http.StatusServiceUnavailable)
				return
			}
		}
	})
	mux.HandleFunc("GET /served", func(w http.ResponseWriter, r *http.Request) {
		host, _ := routing.SplitHost(r.URL.Query().Get("host"))
		backends, known := table.Backends(host)
		answer := Served{Host: known}
		for i := range backends {
			conn, err := dialer.Dial(r.Context(), &backends[i])
			if answer.Pod = err == nil; !answer.Pod {
				break
			}
			_ = conn.Close()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
	return mux
}
