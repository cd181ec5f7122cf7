// Command berg-operator runs the operator. Its settings are in the environment
// or on the command line: see berg-operator --help.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/deploy"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/connection"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/kit/settingsmap"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/internal/operator/install"
)

// version is set by the build.
var version = "dev"

// gcPercent is how much the heap may grow between two garbage collections if GOGC is not
// set: half of Go's default. The heap consists of caches, which change little.
const gcPercent = 50

// streamedLists is the feature gate of client-go for lists that are streamed object by object. They
// save memory of the API server, which our lists hardly use, and cost both sides more than twice
// the CPU time: with 10,000 instances a start takes 20 s or more instead of 13.
const streamedLists = "KUBE_FEATURE_WatchListClient"

// leaderCommand, as the first argument, asks whether a replica leads: the test of the Helm chart.
const leaderCommand = "leader"

func main() {
	all := families.All()
	if len(os.Args) > 1 {
		for _, f := range all {
			if command, ok := f.Commands[os.Args[1]]; ok {
				os.Exit(command(os.Args[2:], os.Stderr))
			}
		}
	}
	if len(os.Args) > 1 && os.Args[1] == leaderCommand {
		if err := checkLeader(all, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == install.Command {
		if err := runInstaller(ctrl.SetupSignalHandler(), os.Args[2:]); err != nil {
			fail(config.Process{}, err)
		}
		return
	}
	opts := operator.Options{}
	if os.Getenv("GOGC") == "" {
		opts.GCPercent = gcPercent
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv(streamedLists) == "" {
		_ = os.Setenv(streamedLists, "false") // fails only for invalid names
	}
	var process config.Process
	if err := settingsmap.Run(ctrl.SetupSignalHandler(), func(ctx context.Context, end context.CancelCauseFunc) error {
		return serve(ctx, end, all, &process, opts)
	}); err != nil {
		fail(process, err)
	}
}

// serve reads the settings, and runs the operator until ctx is done, or the settings change. end is called with the cause when
// the ConfigMap has other settings: the process then begins again with them.
func serve(ctx context.Context, end context.CancelCauseFunc, all []family.Family, process *config.Process, opts operator.Options) error {
	level := uberzap.NewAtomicLevel()
	logger := operator.WithQuietStop(ctx, zap.New(
		zap.Level(level),
		zap.StacktraceLevel(zapcore.DPanicLevel), // an error of the API server is not a bug of the operator
	))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger) // what client-go logs without a context
	shared := settingsmap.New("berg-operator", ctrl.Log.WithName("settings"))
	var unread error
	loaded, enabled, effective, err := operator.Load(all, os.Args[1:], os.Getenv, func(process config.Process) (content map[string]string, err error) {
		if content, unread = readShared(ctx, shared, process); unread != nil {
			return nil, unread
		}
		return content, settings.CheckNames(content)
	}, os.Stdout)
	*process = loaded
	switch {
	case errors.Is(err, settings.ErrHelp) || ctx.Err() != nil:
		return nil //nolint:nilerr // stopped before it began to work
	case unread != nil:
		return unread
	case err != nil:
		return fmt.Errorf("%s\n%w", settings.Invalid, err)
	}
	level.SetLevel(zapcore.Level(-loaded.LogLevel))
	opts.Deposed = func() { deposed(loaded) }
	shared.Follow(ctx, end, validShared)
	return run(ctx, loaded, enabled, effective, opts)
}

// readShared reads the ConfigMap with settings as soon as the API server answers.
func readShared(ctx context.Context, shared *settingsmap.ConfigMap, process config.Process) (map[string]string, error) {
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	if err := operator.AwaitAPIServer(ctx, connection.Configure(restConfig), process.HealthProbeBindAddress, ctrl.Log.WithName("setup")); err != nil {
		return nil, err
	}
	return shared.Read(ctx, process.Namespace)
}

// validShared returns the errors with which the operator would not start.
func validShared(content map[string]string) error {
	_, _, _, err := operator.Load(families.All(), os.Args[1:], os.Getenv, func(config.Process) (map[string]string, error) {
		return content, settings.CheckNames(content)
	}, io.Discard)
	return err
}

// checkLeader takes the settings of the process.
func checkLeader(all []family.Family, args []string) error {
	process, _, _, err := operator.Load(all, args, os.Getenv, nil, os.Stdout)
	if err != nil {
		return err
	}
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	restConfig = connection.Configure(restConfig)
	return operator.CheckLeader(ctrl.SetupSignalHandler(), restConfig, process)
}

// runInstaller takes the name of the operator's account, and settings of the process.
func runInstaller(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return errors.New("install: name the account of the operator")
	}
	process, _, _, err := operator.Load(families.All(), args[1:], os.Getenv, nil, os.Stdout)
	if err != nil {
		return err
	}
	ctrl.SetLogger(operator.WithQuietStop(ctx, zap.New(zap.StacktraceLevel(zapcore.DPanicLevel))))
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	restConfig = connection.Configure(restConfig)
	if err := operator.AwaitAPIServer(ctx, restConfig, process.HealthProbeBindAddress, ctrl.Log.WithName("setup")); err != nil {
		return err
	}
	mgr, err := install.New(ctx, restConfig, process, args[0], deploy.Fence, false)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func run(ctx context.Context, process config.Process, enabled []family.Family, effective []settings.Effective, opts operator.Options) error {
	log := ctrl.Log.WithName("setup")
	log.Info("effective configuration", append([]any{"version", version}, settings.LogValues(effective)...)...)
	for _, warning := range warnings(enabled) {
		log.Info("the configuration is valid, but probably not intended", "warning", warning)
	}
	// Near the memory limit of the container, garbage is collected more often: slower is
	// better than killed. GOMEMLIMIT wins if it is set.
	if _, err := memlimit.Set(); err != nil {
		log.Error(err, "the memory limit of the container cannot be read: set GOMEMLIMIT to nine tenths of it")
	}

	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	restConfig = connection.Configure(restConfig)
	operator.AnnounceVersion(version)
	if process.EnabledAPIs != nil {
		return start(ctx, restConfig, process, enabled, opts)
	}
	installation, err := operator.NewInstallation(restConfig, enabled, log)
	if err != nil {
		return err
	}
	installed, err := installation.Await(ctx, process.HealthProbeBindAddress)
	if ctx.Err() != nil {
		return nil // stopped before it began to work
	}
	if err != nil {
		return err
	}
	// Kubernetes starts the process again after it has ended, with the families that are installed then.
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		if installation.AwaitChange(ctx, installed) == nil {
			end()
		}
	}()
	return start(ctx, restConfig, process, installed, opts)
}

func start(ctx context.Context, restConfig *rest.Config, process config.Process, enabled []family.Family, opts operator.Options) error {
	mgr, err := operator.New(ctx, restConfig, process, enabled, opts)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func warnings(enabled []family.Family) []string {
	sections := make([]settings.Section, len(enabled))
	for i, f := range enabled {
		sections[i] = f.Settings
	}
	return settings.Warnings(sections)
}

// deposed ends the process immediately: the new leader continues the work from the state
// in the cluster. The process does not stop in order, because each further write could meet one of the new leader.
func deposed(process config.Process) {
	fail(process, errors.New("another replica leads: this replica was paused, or had no connection to the API server, for longer than its lease"))
}

// fail ends the process with a reason that kubectl describe pod shows.
func fail(process config.Process, err error) {
	fmt.Fprintln(os.Stderr, err)
	writeTerminationLog(cmp.Or(process.TerminationLog, config.DefaultTerminationLog), err)
	os.Exit(1)
}
