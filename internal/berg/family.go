// Package berg is the family of ChallengeInstances: the entry point for the operator.
package berg

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/access"
	"github.com/bergctf/berg-operator/internal/berg/challenge"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/check"
	"github.com/bergctf/berg-operator/internal/berg/isolation"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/berg/prepull"
	"github.com/bergctf/berg-operator/internal/berg/profiles"
	"github.com/bergctf/berg-operator/internal/berg/reach"
	"github.com/bergctf/berg-operator/internal/berg/record"
	"github.com/bergctf/berg-operator/internal/berg/revisions"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/berg/warm"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/kit/identity"
	"github.com/bergctf/berg-operator/internal/kit/optional"
)

// New returns the family. Its settings are read into cfg.
func New(cfg *config.Berg) family.Family {
	return family.Family{
		API:      bergv1.GroupVersion.Group,
		Settings: cfg.Section(),
		AddToScheme: runtime.SchemeBuilder{
			bergv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme, appsv1.AddToScheme,
			batchv1.AddToScheme, authorizationv1.AddToScheme, authenticationv1.AddToScheme, rbacv1.AddToScheme, nodev1.AddToScheme,
			networkingv1.AddToScheme, policyv1.AddToScheme, gatewayv1.Install, ciliumv2.AddToScheme,
		},
		Cache:    func() cache.Options { return caches(*cfg) },
		Setup:    func(ctx context.Context, deps family.Dependencies) error { return setup(ctx, deps, *cfg) },
		Busy:     family.Busy{Kind: &bergv1.ChallengeInstance{}, Since: inTransition},
		Commands: map[string]func([]string, io.Writer) int{isolation.Command: isolation.Probe, profiles.Command: profiles.Run},
	}
}

// caches keeps only objects that belong to instances: a cluster may have many others of the same
// kinds. The selector of instances is the default and other kinds are the exception, because a kind
// can only be named when the API server serves it, and some are optional.
func caches(cfg config.Berg) cache.Options {
	all := ctrlcache.ByObject{Label: labels.Everything()}
	options := cache.Options{
		Selector: manifests.OwnershipLabels.Selector(),
		ByObject: map[client.Object]ctrlcache.ByObject{
			&bergv1.Challenge{}:         all,
			&bergv1.ChallengeInstance{}: all,
			optional.Definition():       all,
			&corev1.Namespace{}:         all, // a foreign one of the same name must be seen
			&eventsv1.Event{}:           {Label: labels.Everything(), Field: status.SandboxFailures()},
		},
		Trim: trim,
		// Everyone who may create namespaces can create one with the name of an instance's.
		Domains: domains,

		Finalizers: []string{bergv1.Finalizer, bergv1.CheckFinalizer},
	}
	switch {
	case cfg.Prepull.Lead > 0:
		options.ByObject[&corev1.Node{}] = all
	case nodes.Watched(cfg.Challenge):
		options.ByObject[&corev1.Node{}] = all
		options.Trim = trimWithoutImages
	}
	if cfg.Challenge.NetworkPolicy == config.NetworkPolicyAuto {
		options.ByObject[&appsv1.DaemonSet{}] = ctrlcache.ByObject{Namespaces: map[string]ctrlcache.Config{cfg.Challenge.CiliumNamespace: {
			LabelSelector: labels.Everything(), FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, challengeinstance.CiliumAgents),
		}}}
	}
	pods := []string{bergv1.ComponentPod}
	if cfg.Check.Concurrency > 0 {
		options.ByObject[&bergv1.ChallengeCheck{}] = all
		pods = append(pods, bergv1.ComponentSolver)
	}
	if cfg.Prepull.Lead > 0 {
		options.ByObject[&nodev1.RuntimeClass{}] = all
		pods = append(pods, bergv1.ComponentPrepull)
	}
	if cfg.Prepull.Lead > 0 || cfg.Challenge.WarmMaxInstances > 0 { // the registrations of platforms
		options.ByObject[&corev1.ConfigMap{}] = ctrlcache.ByObject{Label: ofManagers(bergv1.ManagedBy, bergv1.ManagedByAPI)}
	}
	if cfg.Record.Retention > 0 {
		options.ByObject[record.Kind()] = ctrlcache.ByObject{Namespaces: map[string]ctrlcache.Config{cfg.Record.Namespace: {LabelSelector: labels.Everything()}}}
	}
	options.ByObject[&corev1.Pod{}] = ctrlcache.ByObject{Label: ofComponents(pods)}
	return options
}

// ofComponents selects the objects of instances that are one of some components.
func ofComponents(names []string) labels.Selector {
	if len(names) == 1 {
		return labels.SelectorFromSet(labels.Set{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: names[0]})
	}
	requirement, err := labels.NewRequirement(bergv1.LabelComponent, selection.In, names)
	if err != nil {
		panic(err) // they are constants
	}
	return manifests.OwnershipLabels.Selector().Add(*requirement)
}

// ofManagers selects the objects that one of some managers has made.
func ofManagers(names ...string) labels.Selector {
	requirement, err := labels.NewRequirement(bergv1.LabelManagedBy, selection.In, names)
	if err != nil {
		panic(err) // they are constants
	}
	return labels.NewSelector().Add(*requirement)
}

// The rights of optional parts are asked for before their controllers are made, so that a missing one ends the start with a text.
func setup(ctx context.Context, deps family.Dependencies, cfg config.Berg) error {
	mgr := deps.Manager
	if nodes.Watched(cfg.Challenge) {
		direct, err := directClient(mgr)
		if err != nil {
			return err
		}
		if cfg.Challenge, err = nodes.Permitted(ctx, direct, cfg.Challenge); err != nil {
			return err
		}
	}
	starts, err := deps.NewClient()
	if err != nil {
		return err
	}
	reconciler := &challengeinstance.Reconciler{
		Client: mgr.GetClient(),
		Starts: starts,
		Live:   mgr.GetAPIReader(),
		Writer: deps.Writer,
		Events: challengeinstance.WithSource(mgr.GetEventRecorder("berg-operator")),
		Clock:  deps.Clock,

		Config:    cfg,
		Workers:   deps.Workers,
		Namespace: deps.Namespace,

		Presence:  deps.Presence,
		Direct:    deps.Direct,
		Isolation: isolation.NewLatest(),
		Reach:     reach.New(cfg.Challenge.ConnectTimeout, deps.Clock),
		Revisions: revisions.NewStore[manifests.Snapshot](mgr.GetClient(), mgr.GetAPIReader(), deps.Clock, deps.Namespace),
	}
	if cfg.Record.Retention > 0 {
		recorder, err := records(ctx, deps, cfg.Record)
		if err != nil {
			return err
		}
		reconciler.Recorder = recorder
	}
	if cfg.Challenge.WarmMaxInstances > 0 {
		if reconciler.PodAccess, err = warmAccess(ctx, deps); err != nil {
			return err
		}
	}
	if err := reconciler.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	challenges := &challenge.Reconciler{
		Access: deps.Access("berg-operator"),
		Config: cfg.Challenge,
		Rules:  rules.Settings{Allowed: rules.AllowedBy(cfg.Challenge), StartDeadline: cfg.Challenge.StartDeadline},
	}
	challenges.Workers = 1
	if err := challenges.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	pools := &warm.Reconciler{Access: deps.Access("berg-operator"), Config: cfg.Challenge, Namespace: deps.Namespace}
	if err := pools.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	if cfg.Check.Concurrency > 0 {
		// A client that no fence holds back: a standby asks too.
		direct, err := directClient(mgr)
		if err != nil {
			return err
		}
		if err := check.Permitted(ctx, direct); err != nil {
			return err
		}
		if err := checks(deps, cfg).SetupWithManager(ctx, mgr); err != nil {
			return err
		}
	}
	if cfg.Prepull.Lead > 0 {
		direct, err := directClient(mgr)
		if err != nil {
			return err
		}
		if err := prepull.Permitted(ctx, direct); err != nil {
			return err
		}
		if err := prepulls(deps, cfg).SetupWithManager(ctx, mgr); err != nil {
			return err
		}
	}
	if cfg.IsolationCheck == config.IsolationCheckOff {
		return nil
	}
	check, err := isolationCheck(deps, cfg, reconciler.Isolation)
	if err != nil {
		return fmt.Errorf("the check of network policies: %w", err)
	}
	return mgr.Add(check)
}

func directClient(mgr ctrl.Manager) (client.Client, error) {
	return client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
}

// records returns the recorder of ended instances.
func records(ctx context.Context, deps family.Dependencies, cfg config.Record) (*record.Recorder, error) {
	mgr := deps.Manager
	direct, err := directClient(mgr)
	if err != nil {
		return nil, err
	}
	me, err := identity.New(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	logAccess := &access.Access{Right: record.Logs, Client: mgr.GetClient(), Identity: me}
	if err := record.Permitted(ctx, logAccess, direct, cfg); err != nil {
		return nil, err
	}
	if err := logAccess.Follow(ctx, deps.Policies); err != nil {
		return nil, err
	}
	logs, err := clientcorev1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	sweeper := &record.Sweeper{Client: mgr.GetClient(), Clock: deps.Clock, Config: cfg}
	if err := sweeper.SetupWithManager(ctx, mgr); err != nil {
		return nil, err
	}
	recorder := &record.Recorder{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Logs: logs, Access: logAccess, Clock: deps.Clock, Config: cfg,
	}
	return recorder, mgr.Add(recorder)
}

// warmAccess returns the right to notify pods of prepared instances of their flag.
func warmAccess(ctx context.Context, deps family.Dependencies) (*access.Access, error) {
	mgr := deps.Manager
	direct, err := directClient(mgr)
	if err != nil {
		return nil, err
	}
	me, err := identity.New(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	pods := &access.Access{Right: warm.Pods, Client: mgr.GetClient(), Identity: me}
	create := authorizationv1.ResourceAttributes{Namespace: deps.Namespace, Group: bergv1.GroupVersion.Group, Resource: "challengeinstances", Verb: "create"}
	if err := pods.Permitted(ctx, direct, create); err != nil {
		return nil, err
	}
	return pods, pods.Follow(ctx, deps.Policies)
}

// checks returns the reconciler of ChallengeChecks.
func checks(deps family.Dependencies, cfg config.Berg) *check.Reconciler {
	mgr := deps.Manager
	return &check.Reconciler{
		Access: deps.Access("berg-operator"),
		Live:   mgr.GetAPIReader(),
		Config: cfg,
		Policies: func(ctx context.Context) config.NetworkPolicy {
			return challengeinstance.Policies(ctx, mgr.GetClient(), cfg.Challenge, deps.Presence)
		},
		Namespace: deps.Namespace,
	}
}

// prepulls returns the reconciler that has images pulled before players need them.
func prepulls(deps family.Dependencies, cfg config.Berg) *prepull.Reconciler {
	mgr := deps.Manager
	return &prepull.Reconciler{
		Access: deps.Access("berg-operator"), Live: mgr.GetAPIReader(),
		Config: cfg, Namespace: deps.Namespace,
	}
}

// isolationCheck returns the check whether network policies are enforced.
func isolationCheck(deps family.Dependencies, cfg config.Berg, latest *isolation.Latest) (*isolation.Checker, error) {
	mgr := deps.Manager
	// A client of its own: nothing of the check is in the caches.
	direct, err := directClient(mgr)
	if err != nil {
		return nil, err
	}
	// The kubelet names a container's host after its pod.
	pod, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// A policy of the operator's own may close its probes to other pods, hardly its metrics.
	address := deps.Metrics
	if address == "0" {
		address = deps.Probes
	}
	return &isolation.Checker{
		Client: direct, Events: mgr.GetEventRecorder("berg-operator"), Clock: deps.Clock, Config: cfg,
		Policies: func(ctx context.Context) config.NetworkPolicy {
			return challengeinstance.Policies(ctx, mgr.GetClient(), cfg.Challenge, deps.Presence)
		},
		Pod: client.ObjectKey{Namespace: deps.Namespace, Name: pod}, Address: address, Program: program,
		Settle: isolation.DefaultSettle, Latest: latest,
	}, nil
}

// inTransition lists since when instances wait for the operator to build or to delete them.
func inTransition(ctx context.Context, reader client.Reader) ([]time.Time, error) {
	var instances bergv1.ChallengeInstanceList
	if err := reader.List(ctx, &instances, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var since []time.Time
	for i := range instances.Items {
		if began, ok := transition(&instances.Items[i]); ok {
			since = append(since, began)
		}
	}
	return since, nil
}

// transition returns since when an instance waits for the operator; ok is false if it does not. A Failed one waits for a
// person.
func transition(i *bergv1.ChallengeInstance) (began time.Time, ok bool) {
	if !i.DeletionTimestamp.IsZero() {
		return i.DeletionTimestamp.Time, true
	}
	if status.Queued(i) {
		return time.Time{}, false // it waits for others to end, however long that takes
	}
	switch i.Status.Phase {
	case "", bergv1.PhasePending, bergv1.PhaseCreating, bergv1.PhaseStarting:
		if i.Status.StartedAt != nil {
			return i.Status.StartedAt.Time, true
		}
		return i.CreationTimestamp.Time, true
	case bergv1.PhaseRunning, bergv1.PhaseTerminating, bergv1.PhaseTerminated, bergv1.PhaseFailed:
	}
	return time.Time{}, false
}
