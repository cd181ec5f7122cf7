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
	"slices"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/bergctf/berg-operator/internal/gate"
	"github.com/bergctf/berg-operator/internal/kit/connection"
	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/kit/settingsmap"
)

// version is set by the linker.
var version = "v0.0.0-dev"

func main() {
	stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := settingsmap.Run(stopped, run); err != nil {
		fmt.Fprintf(os.Stderr, "berg-gate: %v\n", err)
		os.Exit(1)
	}
}

// run loads the settings and serves until ctx is done, or the settings change. With GATE_ENABLED=false it reads nothing else of the cluster.
func run(ctx context.Context, end context.CancelCauseFunc) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	var config gate.Config
	shared := settingsmap.New("berg-gate", ctrl.Log)
	effective, err := load(&config, func() (map[string]string, error) { return shared.Read(ctx, config.Namespace) })
	if errors.Is(err, settings.ErrHelp) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s\n%w", settings.Invalid, err)
	}
	shared.Follow(ctx, end, func(content map[string]string) error {
		changed, err := load(&gate.Config{}, func() (map[string]string, error) { return content, nil })
		if err == nil && slices.Equal(changed, effective) { // players would wait for nothing
			return settingsmap.ErrUnchanged
		}
		return err
	})
	log.Info("effective configuration", append([]any{"version", version}, settings.LogValues(effective)...)...)
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

// load reads the settings with the content of the ConfigMap.
func load(config *gate.Config, content func() (map[string]string, error)) ([]settings.Effective, error) {
	return settings.LoadShared("berg-gate "+version+": serves the host names of instances, as an implementation of the Gateway API.",
		[]settings.Section{config.Section()}, os.Args[1:], os.Getenv, func() (map[string]string, error) {
			shared, err := content()
			return shared, errors.Join(err, settings.CheckNames(shared))
		}, os.Stdout)
}
