// Command berg-operator runs the operator. Everything it can be told stands in
// the environment or on the command line: see berg-operator --help.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/isolation"
	"github.com/bergctf/berg-operator/internal/operator"
)

// version is set by the build.
var version = "dev"

// gcPercent is how much the heap may grow between two collections, where GOGC does not
// say: half of the usual. What is in the heap are caches, which change little.
const gcPercent = 50

// streamedLists names the switch of client-go for lists that come as a stream of single
// objects. That saves the API server memory, of which our lists take little, and costs both
// sides more than twice the processor time: with 10,000 instances a start takes 20 s and
// more instead of 13.
const streamedLists = "KUBE_FEATURE_WatchListClient"

func main() {
	if len(os.Args) > 1 && os.Args[1] == isolation.Command {
		os.Exit(isolation.Probe(os.Args[2:], os.Stderr))
	}
	opts := operator.Options{}
	if os.Getenv("GOGC") == "" {
		opts.GCPercent = gcPercent
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv(streamedLists) == "" {
		_ = os.Setenv(streamedLists, "false") // fails for names alone that cannot be
	}
	cfg, values, err := config.Load(os.Args[1:], os.Getenv, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fail(cfg, fmt.Errorf("the configuration is not valid, nothing was started:\n%w", err))
	}
	opts.Deposed = func() { deposed(cfg) }
	if err := run(cfg, values, opts); err != nil {
		fail(cfg, err)
	}
}

func run(cfg config.Config, values []config.Value, opts operator.Options) error {
	logger := zap.New(
		zap.Level(zapcore.Level(-cfg.Process.LogLevel)),
		zap.StacktraceLevel(zapcore.DPanicLevel), // an error of the API server is no defect of ours
	)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger) // what client-go says without a context
	log := ctrl.Log.WithName("setup")
	effective := make([]any, 0, 2*len(values))
	for _, v := range values {
		effective = append(effective, v.Name, v.Value)
	}
	log.Info("effective configuration", append(effective, "version", version)...)
	for _, warning := range cfg.Warnings() {
		log.Info("the configuration is hardly what is meant", "warning", warning)
	}
	// Near the memory limit of the container, garbage is collected more often: slower is
	// better than killed. Where GOMEMLIMIT is set, that holds.
	if _, err := memlimit.Set(); err != nil {
		log.Error(err, "the container's memory limit is not known: set GOMEMLIMIT to nine tenths of it")
	}

	ctx := ctrl.SetupSignalHandler()
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	err = operator.AwaitAPIServer(ctx, restConfig, cfg.Process.HealthProbeBindAddress, log)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // told to stop before there was anything to do
	}
	if err != nil {
		return err
	}
	operator.AnnounceVersion(version)
	mgr, err := operator.New(ctx, restConfig, cfg, opts)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// deposed ends the process at once: the new leader goes on with what this one has
// begun, wherever it was.
func deposed(cfg config.Config) {
	fail(cfg, errors.New("another replica leads: this one was stopped or cut off from the API server for longer than the lease lasts"))
}

// fail ends the process with a reason that kubectl describe pod shows.
func fail(cfg config.Config, err error) {
	fmt.Fprintln(os.Stderr, err)
	writeTerminationLog(cmp.Or(cfg.Process.TerminationLog, config.DefaultTerminationLog), err)
	os.Exit(1)
}
