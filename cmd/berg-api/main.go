// Command berg-api is the API for platforms that players use, such as CTFd and rCTF. It starts, renews and ends
// ChallengeInstances for them. Its settings are in the environment or on the command line: see berg-api --help.
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
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/bergctf/berg-operator/internal/kit/connection"
	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/kit/settingsmap"
	"github.com/bergctf/berg-operator/internal/platform/server"
)

// version is set by the linker.
var version = "v0.0.0-dev"

func main() {
	stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := settingsmap.Run(stopped, run); err != nil {
		fmt.Fprintf(os.Stderr, "berg-api: %v\n", err)
		os.Exit(1)
	}
}

// run loads the settings and serves until ctx is done, or the settings change. With PLATFORM_API=false it reads nothing else of the
// cluster, for installations that do not use the API yet.
func run(ctx context.Context, end context.CancelCauseFunc) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	var config server.Config
	shared := settingsmap.New("berg-api", ctrl.Log)
	effective, err := load(&config, func() (content map[string]string, err error) {
		content, err = shared.Read(ctx, config.TokenNamespace)
		config.LivePage.Shared = content
		return content, err
	})
	if errors.Is(err, settings.ErrHelp) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s\n%w", settings.Invalid, err)
	}
	shared.Follow(ctx, end, func(content map[string]string) error {
		_, err := load(&server.Config{}, func() (map[string]string, error) { return content, nil })
		return err
	})
	log.Info("effective configuration", append([]any{"version", version}, settings.LogValues(effective)...)...)
	if _, err := memlimit.Set(); err != nil {
		log.Warn("the memory limit of the container cannot be read: set GOMEMLIMIT to nine tenths of it", "error", err)
	}
	if !config.Enabled {
		return server.RunOff(ctx, config, log)
	}
	rc, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	s, err := server.New(connection.Configure(rc), config, clock.RealClock{}, log)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// load reads the settings with the content of the ConfigMap.
func load(config *server.Config, content func() (map[string]string, error)) ([]settings.Effective, error) {
	return settings.LoadShared("berg-api "+version+": starts, renews and ends instances for platforms such as CTFd and rCTF.",
		[]settings.Section{config.Section()}, os.Args[1:], os.Getenv, func() (map[string]string, error) {
			shared, err := content()
			return shared, errors.Join(err, settings.CheckNames(shared))
		}, os.Stdout)
}
