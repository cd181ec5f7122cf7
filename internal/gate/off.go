package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
)

// RunOff serves health until ctx is done. It reads nothing of the cluster, and needs no right.
func RunOff(ctx context.Context, config Config, log *slog.Logger) error {
	mux := http.NewServeMux()
	for _, path := range []string{"GET /healthz", "GET /readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	}
	server := &http.Server{Addr: config.AdminBindAddress, Handler: mux, ReadTimeout: adminTime, WriteTimeout: adminTime, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	log.Info("the gate is off: grant its rights, then set GATE_ENABLED=true")
	if err := server.ListenAndServe(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("ADMIN_BIND_ADDRESS: %w", err)
	}
	return nil
}
