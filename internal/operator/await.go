package operator

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/bergctf/berg-operator/internal/kit/ports"
)

// AwaitAPIServer returns when the API server answers, or with the error of ctx.
//
// New needs the API server. A process that exited without it would be restarted
// with backoff of up to five minutes, and instances would expire that much late
// when the API server is back. Until then the probes report alive and not ready.
func AwaitAPIServer(ctx context.Context, restConfig *rest.Config, probes string, log logr.Logger) error {
	discovered, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	stop, err := serveAlive(probes, "waiting for the API server", log)
	if err != nil {
		return err
	}
	defer stop()
	last := ""
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(context.Context) (bool, error) {
		// A server that answers may still refuse other requests. New fails then, and Kubernetes starts the process again.
		_, err := discovered.ServerVersion()
		if err != nil && err.Error() != last {
			last = err.Error()
			log.Info("waiting for the API server", "reason", last)
		}
		return err == nil, nil
	})
}

// serveAlive answers the probes of a process that is alive, and not ready for a reason.
func serveAlive(address, reason string, log logr.Logger) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve the probes: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle(livePath, http.StripPrefix(livePath, healthz.CheckHandler{Checker: healthz.Ping}))
	mux.HandleFunc(readyPath, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, reason, http.StatusServiceUnavailable)
	})
	server, listener := ports.NewServer(listener, ports.Options{Handler: mux, Anonymous: true, Log: portLog(log, "probes")})
	go func() { _ = server.Serve(listener) }() // it ends with an error when it is closed
	return func() { _ = server.Close() }, nil
}
