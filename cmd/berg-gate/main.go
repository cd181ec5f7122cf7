// Command berg-gate serves the Gateways of its GatewayClass: the host names of instances. Its settings are in the environment or on the
// command line: see berg-gate --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/bergctf/berg-operator/internal/gate"
	"github.com/bergctf/berg-operator/internal/kit/connection"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// version is set by the linker.
var version = "v0.0.0-dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "berg-gate: %v\n", err)
		os.Exit(1)
	}
}

// run loads the settings and serves until ctx is done. With GATE_ENABLED=false it reads nothing of the cluster.
func run(ctx context.Context) error {
	var config gate.Config
	effective, err := settings.Load("berg-gate "+version+": serves the host names of instances, as an implementation of the Gateway API.",
		[]settings.Section{config.Section()}, os.Args[1:], os.Getenv, os.Stdout)
	if errors.Is(err, settings.ErrHelp) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the configuration is invalid, nothing was started:\n%w", err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	values := []any{"version", version}
	for _, e := range effective {
		values = append(values, e.Name, e.Value)
	}
	log.Info("effective configuration", values...)
	if _, err := memlimit.Set(); err != nil {
		log.Warn("the memory limit of the container cannot be read: set GOMEMLIMIT to nine tenths of it", "error", err)
	}
	if !config.Enabled {
		return gate.RunOff(ctx, config, log)
	}
	rc, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	if err := gate.Run(ctx, connection.Configure(rc), config); err != nil {
		return fmt.Errorf("serve Gateways: %w", err)
	}
	return nil
}
