package challengeinstance

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// Reconciler builds, watches and ends ChallengeInstances.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Writer writes everything that belongs to an instance.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.Config

	pauses workqueue.TypedRateLimiter[reconcile.Request]
	former formerPolicies
}

// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challenges,verbs=get;list;watch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=system
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes;tlsroutes,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=cilium.io,resources=ciliumnetworkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// conflictPause is how long we wait for the cache to show the write that ours
	// collided with, when that write's own event does not wake us.
	conflictPause = 200 * time.Millisecond
	// The pauses between attempts at an instance that the API server refuses.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Minute
	// longestPass bounds one reconciliation, should the API server not answer.
	longestPass = time.Minute
)

// Reconcile brings one instance a step further, or leaves it alone when there is
// nothing to do.
//
// It returns no errors: for one, the queue would choose the pause alone, and an
// instance that keeps failing would miss its expiry.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	began := r.Clock.Now()
	result, err := r.reconcile(ctx, req)
	switch {
	case err == nil, apierrors.IsNotFound(err): // the instance went away under us
		r.pauses.Forget(req)
		err = nil
	case apierrors.IsConflict(err):
		result.RequeueAfter, err = conflictPause, nil
	case errors.Is(ctx.Err(), context.Canceled): // we are being shut down
		return ctrl.Result{}, nil
	default:
		log.FromContext(ctx).Error(err, "not done, will be tried again")
		pause := r.pauses.When(req)
		if result.RequeueAfter == 0 || pause < result.RequeueAfter {
			result.RequeueAfter = pause
		}
	}
	observeReconcile(r.Clock.Since(began), err)
	return result, nil
}

func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	instance := &bergv1.ChallengeInstance{}
	if err := r.Client.Get(ctx, req.NamespacedName, instance); err != nil {
		return ctrl.Result{}, err
	}
	now := r.Clock.Now()
	if instance.DeletionTimestamp != nil {
		return ctrl.Result{}, r.finalize(ctx, instance, now)
	}
	if reason := dueTermination(instance, r.Config.Challenge, now); reason != "" {
		return ctrl.Result{}, r.terminate(ctx, instance, reason)
	}
	if err := r.ensureFinalizer(ctx, instance); err != nil {
		return ctrl.Result{}, err
	}

	observed, err := r.observe(ctx, instance)
	if err != nil {
		return ctrl.Result{}, err
	}
	if r.Config.Challenge.WithdrawalPolicy == config.WithdrawalStop && observed.Challenge == nil && instance.Status.ChallengeSnapshot != nil {
		return ctrl.Result{}, r.terminate(ctx, instance, bergv1.TerminationAdmin)
	}

	out := Outcome{Observed: observed}
	out.Problem = judge(instance, observed, r.challengeKey(instance).String())
	if out.Problem == nil {
		if err := r.start(ctx, instance, observed, now); err != nil {
			return ctrl.Result{}, err
		}
	}
	before := instance.DeepCopy()
	if instance.Status.ChallengeSnapshot != nil {
		pinned, err := parseSnapshot(instance.Status.ChallengeSnapshot)
		if err != nil {
			return ctrl.Result{}, err
		}
		out.Pinned = &pinned
	}
	if out.Problem == nil {
		out.Endpoints, out.Problem = r.build(ctx, instance, *out.Pinned)
	}
	if out.Pinned != nil {
		if out.Observed.Pods, err = r.observePods(ctx, instance); err != nil {
			return ctrl.Result{}, err
		}
	}

	derive(instance, out, r.Config.Challenge, now)
	setExpiry(instance, r.Config.Challenge)
	err = r.patchStatus(ctx, before, instance)
	if err == nil {
		r.report(before, instance, out)
	}
	if p := out.Problem; p != nil && p.Err != nil {
		err = joinPatch(p.Err, err)
	}
	return ctrl.Result{RequeueAfter: wakeUp(instance, r.Config.Challenge, now)}, err
}

// ensureFinalizer persists the finalizer before anything else is written, so
// that no deletion goes by unseen.
func (r *Reconciler) ensureFinalizer(ctx context.Context, instance *bergv1.ChallengeInstance) error {
	if controllerutil.ContainsFinalizer(instance, bergv1.Finalizer) {
		return nil
	}
	before := instance.DeepCopy()
	controllerutil.AddFinalizer(instance, bergv1.Finalizer)
	return r.Client.Patch(ctx, instance, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, instance *bergv1.ChallengeInstance) error {
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
