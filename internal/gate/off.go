package gate

import (
	"context"
	"log/slog"
	"net/http"
)

// RunOff serves health until ctx is done. It reads nothing of the cluster, and needs no right.
func RunOff(ctx context.Context, config Config, log *slog.Logger) error {
	mux := http.NewServeMux()
	for _, path := range []string{"GET /healthz", "GET /readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	}
	log.Info("the gate is off: grant its rights, then set GATE_ENABLED=true")
	return serveAdmin(ctx, config.AdminBindAddress, mux, log)
}
