package challengeinstance

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/keymutex"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/precedence"
)

// Reconciler builds, watches and ends ChallengeInstances.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Writer writes everything that belongs to an instance.
	Writer apply.Writer
	// Starts are the first passes of new instances under way: others let them go first.
	Starts *precedence.Precedence
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.Config

	backoff *outcome.Backoff
	former  formerPolicies
	owners  keymutex.KeyMutex
	// copies are the versions of the pull secret that instances being built have under
	// its own name. What is forgotten here, or by a restart, is copied once more.
	copies *lru.Cache
}

// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challenges,verbs=list;watch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=system
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes;tlsroutes,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=cilium.io,resources=ciliumnetworkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// Why a node refuses a pod stands in events alone; those of foreign pods are not kept.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=list;watch;create;patch

const (
	// longestPass bounds one reconciliation, should the API server not answer.
	longestPass = time.Minute
	// ownerLocks is how many locks the owners share: enough that two owners that are
	// worked on at once hardly ever share one.
	ownerLocks = 4096
	// rememberedCopies are more than are being built at a time.
	rememberedCopies = 4096
)

// Reconcile brings one instance a step further, or leaves it alone when there is
// nothing to do. It returns no errors: outcome.Backoff chooses the pause.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	began := r.Clock.Now()
	wakeUp, err := r.reconcile(ctx, req)
	result, failed := r.backoff.Result(ctx, req, wakeUp, err)
	observeReconcile(r.Clock.Since(began), failed)
	return result, nil
}

// reconcile returns after how long time alone will change something, zero for
// never.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (again time.Duration, err error) {
	instance := &bergv1.ChallengeInstance{}
	defer func() { err = withoutFlag(err, instance) }()
	unlock, err := r.getLocked(ctx, req.NamespacedName, instance)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if instance.DeletionTimestamp != nil {
		return 0, nil // the controller of deletions ends it
	}
	if instance.Status.InstanceID == "" {
		defer r.Starts.Take()()
	}
	now := r.Clock.Now()
	if dueTermination(instance, r.Config.Challenge, now) != "" {
		return 0, nil // the controller of expiries ends it
	}
	if err := finalizer.Ensure(ctx, r.Client, instance, bergv1.Finalizer); err != nil {
		return 0, err
	}

	observed, err := r.observe(ctx, instance)
	if err != nil {
		return 0, err
	}
	if withdrawn(observed.Candidate) && r.Config.Challenge.WithdrawalPolicy == config.WithdrawalStop {
		return 0, terminate(ctx, r.Client, instance, bergv1.TerminationAdmin)
	}

	out := Outcome{Observed: observed, Problem: judge(observed, r.Config.Challenge)}
	if out.Problem == nil {
		if err := r.start(ctx, &out.Observed, now); err != nil {
			return 0, err
		}
		out.Endpoints, out.Problem = r.build(ctx, out.Observed)
	}
	if out.Problem != nil && out.Problem.Class == outcome.Raced {
		return 0, outcome.ErrRaced
	}
	var retried error
	if out.Problem == nil {
		retried = r.retryRefused(ctx, out.Observed, now)
	}
	if err := r.observeOutcome(ctx, &out.Observed); err != nil {
		return 0, err
	}

	before := instance.DeepCopy()
	derive(out, r.Config.Challenge, now)
	err = r.patchStatus(ctx, before, instance)
	if err == nil {
		r.report(before, out, now)
	}
	if p := out.Problem; p != nil && p.Err != nil {
		err = joinPatch(p.Err, err)
	}
	if retried != nil {
		err = joinPatch(retried, err)
	}
	return sooner(untilStartDeadline(instance, r.Config.Challenge, r.Clock.Now()), untilRetry(out.Observed, now)), err
}

// getLocked reads an instance when nobody else works on one of the same owner. Of two
// instances only one may decide that it goes first, and make the namespace; and what is
// being built when its deletion begins is not ended before that has stopped.
func (r *Reconciler) getLocked(ctx context.Context, key client.ObjectKey, instance *bergv1.ChallengeInstance) (unlock func(), err error) {
	var before bergv1.ChallengeInstance
	if err := r.Client.Get(ctx, key, &before, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	owner := before.Spec.OwnerID
	r.owners.LockKey(owner)
	unlock = func() { _ = r.owners.UnlockKey(owner) }
	// What was seen while waiting counts no more.
	if err := r.Client.Get(ctx, key, instance); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, instance *bergv1.ChallengeInstance) error {
	redactConditions(instance)
	if equality.Semantic.DeepEqual(before.Status, instance.Status) {
		return nil
	}
	return r.Client.Status().Patch(ctx, instance, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func joinPatch(err, patch error) error {
	if apierrors.IsConflict(patch) {
		patch = nil // err brings us back anyway
	}
	return errors.Join(err, patch)
}
