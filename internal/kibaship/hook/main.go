package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/bergctf/berg-operator/internal/kit/connection"
	"github.com/bergctf/berg-operator/internal/kit/ports"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Command is the first argument by which the operator's program receives webhooks, and does nothing else.
const Command = "receive-webhooks"

// stopTime is how long requests may take that have arrived when the program stops.
const stopTime = 10 * time.Second

// Config is the settings of the program.
type Config struct {
	BindAddress, MetricsBindAddress, KeyFile string
}

// Section is the table of the settings.
func (c *Config) Section() settings.Section {
	return settings.Section{Title: "Webhooks of git providers", Settings: []settings.Setting{
		settings.New("BIND_ADDRESS", ":8080", settings.Address(&c.BindAddress, ""), "Address of webhooks."),
		settings.New("METRICS_BIND_ADDRESS", ":8081", settings.Address(&c.MetricsBindAddress, ""), "Address of metrics and health."),
		settings.New("WEBHOOK_KEY_FILE", "/etc/kibaship-webhooks/"+KeyName, settings.Path(&c.KeyFile), "File with the key of the secrets of webhooks, from the Secret "+KeySecret+"."),
	}}
}

// Main is the program. It returns its exit code.
func Main(args []string, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var config Config
	_, err := settings.Load(Command+": receives webhooks of git providers for KibaShip Applications.",
		[]settings.Section{config.Section()}, args, os.Getenv, os.Stdout)
	if errors.Is(err, settings.ErrHelp) {
		return 0
	}
	if err == nil {
		err = config.run(ctx)
	}
	if err != nil {
		_, _ = fmt.Fprintf(errs, "%s: %v\n", Command, err)
		return 1
	}
	return 0
}

// run serves both ports until ctx ends, or one of them does. It is ready only while the key can be read: without it, every
// webhook would be refused.
func (c *Config) run(ctx context.Context) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	rc, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	writes, err := dynamic.NewForConfig(connection.Configure(rc))
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(received)
	health := http.NewServeMux()
	health.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	health.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := readKey(c.KeyFile); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	health.Handle("GET /metrics", ports.NewMetricsHandler(registry))
	var all sync.WaitGroup
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	for _, port := range []struct {
		name, address string
		handler       http.Handler
		anonymous     bool
	}{
		{"webhooks", c.BindAddress, &Receiver{KeyFile: c.KeyFile, Client: writes, Clock: clock.RealClock{}, Log: log}, false},
		{"metrics", c.MetricsBindAddress, health, true},
	} {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", port.address)
		if err != nil {
			return fmt.Errorf("listen for %s: %w", port.name, err)
		}
		server, listener := ports.NewServer(listener, ports.Options{
			Handler: port.handler, Anonymous: port.anonymous, Log: log.With("port", port.name),
		})
		// If one of the two ports ends, the other one is closed and the program ends with its error.
		all.Go(func() { end(server.Serve(listener)) })
		all.Go(func() {
			<-ctx.Done()
			// ctx has ended by now, so the time for the rest is its own.
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
			defer cancel()
			_ = server.Shutdown(ending) // what has not ended by then is cut off
		})
	}
	log.Info("webhooks are received", "address", c.BindAddress)
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
