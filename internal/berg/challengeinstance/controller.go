package challengeinstance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/berg/stop"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challenges,verbs=get;list;watch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=system
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=apps,resources=daemonsets,resourceNames=cilium,verbs=list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes;tlsroutes,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=cilium.io,resources=ciliumnetworkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// Why a node refuses a pod stands in events alone; those of foreign pods are not kept.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=list;watch;create;patch

// rememberedCopies are more than are being built at a time.
const rememberedCopies = 4096

// reconcile brings one instance a step further. An instance without changes costs no request. It
// returns after how long time alone will change something, zero for never.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (requeueAfter time.Duration, err error) {
	instance := &bergv1.ChallengeInstance{}
	defer func() { err = redact.Error(err, instance.Spec.Flag) }()
	if err := outcome.WrapNotFound(r.Client.Get(ctx, req.NamespacedName, instance)); err != nil {
		if errors.Is(err, outcome.ErrGone) {
			r.forget(req.NamespacedName)
		}
		return 0, err
	}
	r.backoff.ResetIfReplaced(req, instance.UID)
	now := r.Clock.Now()
	switch {
	case instance.DeletionTimestamp != nil:
		return r.finalize(ctx, instance, now)
	case instance.Status.InstanceID == "":
		return 0, nil // the admitter starts it
	case status.DueTermination(instance, r.Config.Challenge, now) != "":
		return 0, nil // the controller of expiries deletes it
	}
	return r.live(ctx, req, instance, now)
}

// live brings a started instance further: it observes, checks, applies, observes again, and writes the status in one patch.
func (r *Reconciler) live(ctx context.Context, req ctrl.Request, instance *bergv1.ChallengeInstance, now time.Time) (requeueAfter time.Duration, err error) {
	observed, err := r.observe(ctx, instance)
	if err != nil {
		return 0, err
	}
	refused := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, instance, bergv1.Finalizer))
	if refused != nil && outcome.Classify(refused) != outcome.Rejected {
		return 0, refused
	}
	if status.Withdrawn(observed.Candidate) && r.Config.Challenge.WithdrawalPolicy == config.WithdrawalStop {
		return 0, r.withdraw(ctx, instance, now)
	}

	cfg := observed.Nodes.Apply(r.Config.Challenge)
	out := status.Outcome{Observed: observed, Problem: status.Check(observed, cfg)}
	if out.Problem == nil && refused != nil {
		// Without it a deletion would be missed.
		out.Problem = status.NewProblem(bergv1.ConditionNamespaceCreated, fmt.Errorf("put a finalizer on the instance: %w", refused), instance.Spec.Flag)
	}
	if err := r.apply(ctx, &out, cfg, now); err != nil {
		return 0, err
	}
	stopping, err := r.stopWithNamespace(ctx, out.Observed, now)
	if err != nil {
		return 0, err
	}
	var retried error
	if out.Problem == nil {
		retried = r.retryRefused(ctx, out.Observed, now)
	}

	if err := r.observeOutcome(ctx, &out.Observed); err != nil {
		return 0, err
	}
	if r.connecting(req, &out, now) { //nolint:contextcheck // the connection outlives the reconciliation, which does not wait for it
		return 0, nil
	}
	err = r.writeStatus(ctx, out, cfg, now)
	if retried != nil {
		err = reconcile.Join(retried, err)
	}
	deadline := status.Sooner(status.UntilStartDeadline(instance, r.Config.Challenge, r.Clock.Now()), status.UntilRetry(out.Observed, now))
	return status.Sooner(status.Sooner(deadline, status.UntilSettled(out.Observed, now)), stopping.Again), err
}

// withdraw ends an instance whose Challenge was deleted.
func (r *Reconciler) withdraw(ctx context.Context, instance *bergv1.ChallengeInstance, now time.Time) error {
	err := outcome.WrapNotFound(r.terminate(ctx, instance, bergv1.TerminationAdmin))
	if outcome.Classify(err) == outcome.Rejected {
		r.reportBlocked(ctx, instance, bergv1.TerminationAdmin, err, now)
	}
	return err
}

// apply builds the instance unless a problem stops it, and adds the problem that it meets. It returns an error only where no
// status can be computed.
func (r *Reconciler) apply(ctx context.Context, out *status.Outcome, cfg config.Challenge, now time.Time) error {
	if out.Problem == nil {
		if err := r.adopt(ctx, &out.Observed, cfg, now); err != nil {
			return err
		}
		if err := r.prepareNamespace(ctx, &out.Observed); err != nil {
			return err
		}
		out.Problem = status.NamespaceIsOurs(out.Candidate, out.Namespace)
		if out.Problem == nil {
			out.Endpoints, out.Problem = r.build(ctx, &out.Observed, &out.Written)
			if err := outcome.WrapNotFound(r.stopUnconfined(ctx, out.Observed, out.Problem)); err != nil {
				return err
			}
		}
	}
	if out.Problem != nil && out.Problem.Class == outcome.Stale {
		return outcome.ErrConflict
	}
	return nil
}

// writeStatus computes and writes the status, and records what is new as metrics and events.
func (r *Reconciler) writeStatus(ctx context.Context, out status.Outcome, cfg config.Challenge, now time.Time) error {
	before := out.Instance.DeepCopy()
	if err := r.sealAgain(ctx, &out.Observed); err != nil {
		return err
	}
	status.Compute(out, cfg, now)
	err := r.patchStatus(ctx, before, out.Instance)
	if err == nil {
		r.report(before, out, now)
	}
	if p := out.Problem; p != nil && p.Err != nil {
		err = reconcile.Join(p.Err, err)
	}
	return err
}

// stopWithNamespace stops the pods of an instance whose namespace another client deletes.
func (r *Reconciler) stopWithNamespace(ctx context.Context, o status.Observed, now time.Time) (stop.Remaining, error) {
	if o.Namespace == nil || o.Namespace.DeletionTimestamp == nil || !manifests.NamespaceOwner(o.Instance).Owns(o.Namespace) {
		return stop.Remaining{}, nil
	}
	return stop.Pods(ctx, r.Client, o.Namespace.Name, r.policies(ctx).OutlivesNamespace(), now)
}

// connecting reports whether an instance, of which all but Running is written, waits for a connection to its node ports. It
// is enqueued when that is over. It also finds out whether its programs accept connections before their nodes do.
func (r *Reconciler) connecting(req ctrl.Request, out *status.Outcome, now time.Time) bool {
	id, requeue := out.Instance.UID, func() { r.enqueueReady(req) }
	opening := status.ToOpen(*out, now)
	out.Opened = r.Reach.Early(req.NamespacedName, id, opening.Pods, opening.Addresses, requeue)
	switch {
	case out.Instance.Status.ReadyAt == nil:
		return !out.Opened && !r.Reach.Over(req.NamespacedName, id, status.ToConnect(*out, now), requeue)
	case len(opening.Pods) == 0:
		r.Reach.Forget(req.NamespacedName)
	}
	return false
}

// forget drops what is remembered of an instance that no longer exists.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.finalizers.Forget(key)
	r.terminations.forget(key)
	r.Reach.Forget(key)
	if r.Recorder != nil {
		r.Recorder.Forget(key)
	}
}
