package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/connection"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// fieldManager is the operator's name in metadata.managedFields.
const fieldManager = "berg-operator"

// Options are the differences between a deployed operator and one under test.
type Options struct {
	// Clock is the time. Default: the real one.
	Clock clock.PassiveClock
	// SkipNameValidation allows several managers in one process.
	SkipNameValidation bool
	// GCPercent is how much the heap may grow between two collections of garbage, in percent; a small
	// one may grow more. Default: the setting of the runtime, at any size.
	GCPercent int
	// Deposed is called when another replica leads; it must exit.
	// Default: a panic.
	Deposed func()
}

// Load reads the settings of the process and of all families, and returns the families that are enabled: all, if ENABLED_APIS is
// empty. An Installation finds out which of them the cluster has. The other results are the results of settings.LoadShared; shared gets the
// settings of the process from the command line and the environment. Nil: no ConfigMap is read.
func Load(all []family.Family, args []string, getenv func(string) string, shared func(config.Process) (map[string]string, error), out io.Writer) (process config.Process, enabled []family.Family, effective []settings.Effective, err error) {
	var content func() (map[string]string, error)
	if shared != nil {
		content = func() (map[string]string, error) { return shared(process) }
	}
	effective, err = settings.LoadShared(about(all), Sections(&process, all), args, getenv, content, out)
	enabled = slices.Clone(all)
	if process.EnabledAPIs != nil {
		enabled = slices.DeleteFunc(enabled, func(f family.Family) bool { return !slices.Contains(process.EnabledAPIs, f.API) })
	}
	return process, enabled, effective, err
}

// about is the first line of the help.
func about(all []family.Family) string {
	return "berg-operator is a Kubernetes operator for the resources of " + strings.Join(apiNames(all), ", ") + "."
}

// Sections returns every table of settings, the process's last. A family may have none.
func Sections(process *config.Process, all []family.Family) []settings.Section {
	var sections []settings.Section
	for _, f := range all {
		if len(f.Settings.Settings) > 0 {
			sections = append(sections, f.Settings)
		}
	}
	return append(sections, process.Section(apiNames(all)))
}

// New returns a manager with the controllers of the families, ready to start. It needs the API
// server to resolve kinds. The order matters. The manager exists before the families, which add their caches and controllers to
// it. The probes come last, because their checks name everything that was added.
func New(ctx context.Context, restConfig *rest.Config, process config.Process, families []family.Family, opts Options) (ctrl.Manager, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	restConfig = connection.Configure(restConfig)
	options, candidate, err := managerOptions(restConfig, process, families, opts)
	if err != nil {
		return nil, err
	}
	manager, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	mgr, err := newReportingManager(manager)
	if err != nil {
		return nil, fmt.Errorf("set up events: %w", err)
	}
	policies, err := admissionpolicy.New(mgr)
	if err != nil {
		return nil, fmt.Errorf("set up the watches of admission policies: %w", err)
	}
	dependencies := dependencyBuilder{
		mgr: mgr, restConfig: restConfig, newClient: options.NewClient,
		caches: cache.New(fieldManager),
		dependencies: family.Dependencies{
			// Shared, so that the drift backoff counts the writes of all controllers.
			Writer:   apply.Writer{Manager: fieldManager, DriftBackoff: apply.NewDriftBackoff(opts.Clock)},
			Policies: policies,
			Clock:    opts.Clock,
			Workers:  process.MaxConcurrentReconciles, Namespace: process.Namespace,
			Probes: process.HealthProbeBindAddress, Metrics: process.MetricsBindAddress,
		},
	}
	served, err := setUp(ctx, dependencies, families)
	if err != nil {
		return nil, err
	}
	if err := dependencies.serveWebhooks(ctx, process, served); err != nil {
		return nil, fmt.Errorf("set up the webhooks: %w", err)
	}
	if process.OperatorConditionName != "" {
		if err := addGate(ctx, mgr, process, served, opts.Clock); err != nil {
			return nil, fmt.Errorf("set up the gate of upgrades: %w", err)
		}
	}
	if err := mgr.Add(memoryReleaser{opts.GCPercent}); err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	if err := mgr.AddReadyzCheck("caches", cachesFilled(candidate, mgr.Elected())); err != nil {
		return nil, err
	}
	if err := servePorts(mgr, mgr.checks.handler(), process); err != nil {
		return nil, err
	}
	return mgr, nil
}

// managerOptions returns the options of the manager, and a channel that is closed when the process takes part in the
// election; nil without one.
func managerOptions(restConfig *rest.Config, process config.Process, families []family.Family, opts Options) (options ctrl.Options, candidate <-chan struct{}, err error) {
	scheme, err := NewScheme(families...)
	if err != nil {
		return options, nil, err
	}
	options = ctrl.Options{
		Scheme:    scheme,
		NewClient: client.New,

		HealthProbeBindAddress:  "0", // servePorts serves them
		Metrics:                 server.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(shutdownTime),
		Controller:              controllerOptions(opts),
		Logger:                  ctrl.Log,
	}
	if !process.LeaderElect {
		return options, nil, nil
	}
	lease, err := newLease(restConfig, process.Namespace, process.LeaseName, opts.Deposed)
	if err != nil {
		return options, nil, fmt.Errorf("prepare the leader election: %w", err)
	}
	elect(&options, lease, process.LeaseName)
	return options, lease.candidate, nil
}

// setUp adds the controllers of the families to the manager.
func setUp(ctx context.Context, dependencies dependencyBuilder, families []family.Family) (served []servedFamily, err error) {
	for _, f := range families {
		deps, err := dependencies.make(f)
		if err == nil {
			err = f.Setup(ctx, deps)
		}
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("set up %s: %w: install its CRD, or remove its API from ENABLED_APIS", f.API, err)
		}
		if err != nil {
			return nil, fmt.Errorf("set up %s: %w", f.API, err)
		}
		served = append(served, servedFamily{f, deps})
	}
	return served, nil
}

// elect makes the manager work only while it holds the lease, and release the lease
// when it stops.
func elect(options *ctrl.Options, lease *lease, name string) {
	options.LeaderElection = true
	options.LeaderElectionID = name
	options.LeaderElectionResourceLockInterface = lease
	options.LeaderElectionReleaseOnCancel = true
	// The election counts HoldDuration, and the Lease object says LeaseDuration: a replica of another version that counts by the
	// object waits longer, never shorter.
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = ptr.To(HoldDuration), ptr.To(RenewDeadline), ptr.To(RetryPeriod)
	options.NewClient = lease.fencedClient
}

func controllerOptions(opts Options) ctrlconfig.Controller {
	return ctrlconfig.Controller{
		SkipNameValidation: ptr.To(opts.SkipNameValidation),
		// A replica fills its caches while it waits for the lease.
		EnableWarmup: ptr.To(true),
	}
}

// cachesFilled is ready when the operator takes part in the election, or works without
// one: the manager does so only after the caches of all controllers are filled. Before
// that it neither creates nor deletes anything.
func cachesFilled(candidate, elected <-chan struct{}) healthz.Checker {
	return func(*http.Request) error {
		select {
		case <-candidate:
		case <-elected:
		default:
			return errors.New("the caches are not filled yet")
		}
		return nil
	}
}
