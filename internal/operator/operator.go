// Package operator puts the operator together: the scheme, the caches, the
// manager and the controllers.
package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/pass"
	"github.com/bergctf/berg-operator/internal/kit/precedence"
	"github.com/bergctf/berg-operator/internal/kit/walltime"
)

// shutdownTime is how long the process may take to end: what the reconciliations
// under way may take, and a little more. The Deployment's
// terminationGracePeriodSeconds must be longer.
const shutdownTime = pass.DrainTime + 5*time.Second

// fieldManager is the operator's name in metadata.managedFields.
const fieldManager = "berg-operator"

// Options are what differs between a deployed operator and one under test.
type Options struct {
	// Clock is the time. Default: the real one.
	Clock clock.PassiveClock
	// SkipNameValidation allows several managers in one process.
	SkipNameValidation bool
	// GCPercent is how much the heap may grow between two collections of garbage, in percent;
	// a small one may grow more. Default: what the runtime is set to, at any size.
	GCPercent int
	// Deposed is called when another replica turns out to lead; it must end the
	// process. Default: a panic.
	Deposed func()
}

// NewScheme returns a scheme with every kind that the operator reads or writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, eventsv1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
		rbacv1.AddToScheme, gatewayv1.Install, ciliumv2.AddToScheme, bergv1.AddToScheme, quixv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build the scheme: %w", err)
		}
	}
	return scheme, nil
}

// New returns a manager with every controller, ready to be started. It needs the
// API server: its kinds are looked up.
func New(ctx context.Context, restConfig *rest.Config, cfg config.Config, opts Options) (ctrl.Manager, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	// Priority and fairness of the API server bounds us; a limit of our own would
	// only add delay. Zero means the client's default, so it must be negative.
	restConfig = rest.CopyConfig(restConfig)
	restConfig.QPS = -1
	// Admission may warn with a text that repeats what was written, flags included,
	// and the client would log it.
	restConfig.WarningHandlerWithContext = rest.NoWarnings{}

	options := ctrl.Options{
		Scheme: scheme,
		Cache:  caches(cfg),
		Client: client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},

		HealthProbeBindAddress:  cfg.Process.HealthProbeBindAddress,
		PprofBindAddress:        cfg.Process.PprofBindAddress,
		Metrics:                 metricsOptions(cfg.Process),
		GracefulShutdownTimeout: ptr.To(shutdownTime),
		Controller:              controllerOptions(opts),
		Logger:                  ctrl.Log,
	}
	presence := &optional.Presence{}
	var candidate <-chan struct{}
	options.NewClient = client.New
	if cfg.Process.LeaderElect {
		lease, err := newLease(restConfig, cfg.Challenge.OperatorNamespace, opts.Deposed)
		if err != nil {
			return nil, fmt.Errorf("prepare the leader election: %w", err)
		}
		elect(&options, lease)
		candidate = lease.candidate
	}
	options.NewClient = presence.Clients(options.NewClient)
	manager, err := ctrl.NewManager(restConfig, options)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("make the manager: %w: install its definition, or take its API out of ENABLED_APIS", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	starts := &precedence.Precedence{}
	mgr, err := newReportingManager(newGuardedManager(manager, presence), starts)
	if err != nil {
		return nil, fmt.Errorf("set up events: %w", err)
	}

	common := common{
		clock:  opts.Clock,
		config: cfg,
		starts: starts,
		jumps:  walltime.NewWatcher(opts.Clock),

		presence: presence,
		direct:   manager.GetAPIReader(),
		// All who write hold back together.
		writer: apply.Writer{
			Client:    mgr.GetClient(),
			Live:      mgr.GetAPIReader(),
			Manager:   fieldManager,
			Restraint: apply.NewRestraint(opts.Clock),
		},
	}
	for _, r := range openRooms(cfg) {
		if err := r.setup(ctx, mgr, common); err != nil {
			return nil, fmt.Errorf("set up the controllers of %s: %w", r.api, err)
		}
	}
	if err := mgr.Add(common.jumps); err != nil {
		return nil, err
	}
	if err := mgr.Add(memoryKeeper{opts.GCPercent}); err != nil {
		return nil, err
	}
	if cfg.Process.IsolationCheck != config.IsolationCheckOff {
		checker, err := newIsolationCheck(mgr, cfg, opts.Clock)
		if err != nil {
			return nil, fmt.Errorf("set up the check of network policies: %w", err)
		}
		if err := mgr.Add(checker); err != nil {
			return nil, err
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	if err := mgr.AddReadyzCheck("caches", seesTheCluster(candidate, mgr.Elected())); err != nil {
		return nil, err
	}
	return mgr, nil
}

// elect makes the manager work only while it holds the lease, and give the lease
// back when it is told to stop.
func elect(options *ctrl.Options, lease *lease) {
	options.LeaderElection = true
	options.LeaderElectionID = LeaseName
	options.LeaderElectionResourceLockInterface = lease
	options.LeaderElectionReleaseOnCancel = true
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = ptr.To(HoldDuration), ptr.To(RenewDeadline), ptr.To(RetryPeriod)
	options.NewClient = lease.fencedClient
	options.Logger = calmLogger(options.Logger)
}

// caches bounds what is kept in memory: of the kinds that a cluster is full of
// only our own objects, and of every object only what is looked at.
//
// What a challenge instance consists of is the default and the rest the
// exception, because a kind can only be named here when the API server serves
// it, and some are optional.
func caches(cfg config.Config) cache.Options {
	objects := map[client.Object]cache.ByObject{
		// A foreign namespace in our way must be seen.
		&corev1.Namespace{}: {Label: labels.Everything()},
	}
	for _, r := range openRooms(cfg) {
		maps.Copy(objects, r.caches(cfg))
	}
	return cache.Options{
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{bergv1.LabelManagedBy: bergv1.ManagedBy}),
		DefaultTransform:     compact(),
		NewInformer:          newInformers(),
		ByObject:             objects,
	}
}

func metricsOptions(p config.Process) server.Options {
	options := server.Options{BindAddress: p.MetricsBindAddress}
	if p.MetricsSecure && p.MetricsBindAddress != "0" {
		options.SecureServing = true
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
		// HTTP/2 has been the way into many servers that had no need of it.
		options.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	}
	return options
}

func controllerOptions(opts Options) ctrlconfig.Controller {
	return ctrlconfig.Controller{
		SkipNameValidation: ptr.To(opts.SkipNameValidation),
		// A replica that waits for the lease fills its caches meanwhile.
		EnableWarmup: ptr.To(true),
	}
}

// seesTheCluster is ready when the operator takes part in the election, or works
// without one: the manager does neither before the caches of all controllers are
// filled. Until then it would neither build nor end anything.
func seesTheCluster(candidate, elected <-chan struct{}) healthz.Checker {
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
