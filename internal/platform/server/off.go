package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bergctf/berg-operator/internal/kit/ports"
	"github.com/bergctf/berg-operator/internal/platform/challmanager"
	"github.com/bergctf/berg-operator/internal/platform/web"
)

// RunOff serves health and empty metrics until ctx is done, and answers platforms that the API is off. It reads nothing
// of the cluster, and needs no right.
func RunOff(ctx context.Context, config Config, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	defer running.Wait()
	for _, s := range []struct {
		setting, address string
		options          ports.Options
	}{
		{"BIND_ADDRESS", config.BindAddress, ports.Options{Handler: http.HandlerFunc(sayOff), Log: log.With("port", "api")}},
		{"METRICS_BIND_ADDRESS", config.MetricsBindAddress, healthPort(prometheus.NewRegistry(), func() bool { return true }, log)},
	} {
		listener, err := net.Listen("tcp", s.address)
		if err != nil {
			cancel(nil)
			return fmt.Errorf("%s: %w", s.setting, err)
		}
		server, listener := ports.NewServer(listener, s.options)
		running.Go(func() {
			if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
				cancel(err)
			}
		})
		running.Go(func() {
			<-ctx.Done()
			_ = server.Close()
		})
	}
	log.Info("the API is off: grant its rights, then set PLATFORM_API=true")
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// sayOff answers like the endpoint of CTFd.
func sayOff(w http.ResponseWriter, r *http.Request) {
	ports.Refuse(w, r)
	const message = "the platform API is off: grant its rights, then set PLATFORM_API=true, as docs/platform-api.md says"
	(&challmanager.Endpoint{}).Fail(w, web.Failure{Status: http.StatusServiceUnavailable, Message: message})
}
