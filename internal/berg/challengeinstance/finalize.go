package challengeinstance

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// deletion carries out the deletion of instances. It has a queue and workers of its own, so
// that starts and deletions do not wait for each other when a thousand instances terminate at
// the same time.
type deletion struct {
	*Reconciler
	backoff    *outcome.Backoff
	finalizers finalizer.Remover
	calls      calls
}

func (d *deletion) setup(mgr ctrl.Manager) error {
	d.backoff = outcome.NewBackoff()
	return ctrl.NewControllerManagedBy(mgr).
		Named("challengeinstance-deletion").
		For(&bergv1.ChallengeInstance{}, builder.WithPredicates(changes, goneOr(isEnding))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(d.endingIn), builder.WithPredicates(goneOr(isEnding))).
		WatchesRawSource(d.calls.source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: terminationWorkers(d.Workers),
			ReconciliationTimeout:   reconcile.Timeout,
		}).
		Complete(reconcile.New(d.Clock, d.backoff, reconcileMetrics, d.reconcile))
}

// endingIn maps a namespace to the instance that is being deleted and owns it. Hundreds of
// instances of its owner may be terminating that never had a namespace.
func (d *deletion) endingIn(ctx context.Context, ns client.Object) []ctrl.Request {
	return d.ofNamespace(func(i client.Object) bool {
		return isEnding(i) && manifests.OwnerOf(i.(*bergv1.ChallengeInstance)).Owns(ns)
	})(ctx, ns)
}

// terminationWorkers is the number of concurrent workers of the controllers of expiries and of
// deletions. More would end few instances sooner, and would slow down the API server for
// starts.
func terminationWorkers(workers int) int { return max(1, workers/2) }

// reconcile continues the deletion of one instance. Only events trigger it.
func (d *deletion) reconcile(ctx context.Context, req ctrl.Request) (never time.Duration, err error) {
	instance := &bergv1.ChallengeInstance{}
	defer func() { err = redact.Error(err, instance.Spec.Flag) }()
	done, err := d.getInTurn(ctx, turn{&d.calls, req}, instance)
	if errors.Is(err, outcome.ErrGone) {
		d.finalizers.Forget(req.NamespacedName)
		d.terminations.forget(req.NamespacedName)
		if d.Recorder != nil {
			d.Recorder.Forget(req.NamespacedName)
		}
	}
	if err != nil {
		return never, err
	}
	defer done()
	d.backoff.ResetIfReplaced(req, instance.UID)
	if instance.DeletionTimestamp == nil {
		return never, nil
	}
	if instance.Status.InstanceID == "" {
		d.giveWay(ctx)
	}
	return never, d.finalize(ctx, instance, d.Clock.Now())
}

// finalize carries out the deletion of an instance in any state. It needs neither the
// Challenge nor any optional API, since all objects of an instance are in its namespace. It is
// done when the namespace is gone.
func (d *deletion) finalize(ctx context.Context, instance *bergv1.ChallengeInstance, now time.Time) error {
	if !controllerutil.ContainsFinalizer(instance, bergv1.Finalizer) || d.finalizers.Done(instance) {
		return nil
	}
	before := instance.DeepCopy()
	ns, err := d.ownNamespace(ctx, instance)
	if err != nil {
		return err
	}
	mayGo := d.keepRecord(ctx, instance, ns)
	if ns != nil {
		refused := ""
		if ns.DeletionTimestamp == nil && !mayGo {
			return errRecordPending
		}
		if ns.DeletionTimestamp == nil {
			if err = apply.Delete(ctx, d.Client, ns); apierrors.IsConflict(err) {
				return err // it changed: the next reconciliation sees how
			}
			if err != nil {
				err = redact.Error(err, instance.Spec.Flag)
				refused = err.Error()
			}
		}
		status.ComputeTerminating(instance, ns, refused, now)
		return reconcile.Join(err, d.patchTerminating(ctx, before, instance, now)) // events of the namespace trigger the next
	}

	if err := d.sweep(ctx, instance); err != nil {
		return err
	}
	status.ComputeTerminated(instance, now)
	// A rejected status does not keep an instance whose namespace is gone.
	if err := d.patchTerminating(ctx, before, instance, now); err != nil && outcome.CauseOf(err) != outcome.Rejected {
		return err
	}
	return d.finalizers.Remove(ctx, d.Client, instance, bergv1.Finalizer)
}

// patchTerminating writes the status of an instance that is being deleted, and reports what
// changed, also if the API server rejects the status.
func (d *deletion) patchTerminating(ctx context.Context, before, instance *bergv1.ChallengeInstance, now time.Time) error {
	err := d.patchStatus(ctx, before, instance)
	if err == nil || outcome.CauseOf(err) == outcome.Rejected {
		d.reportTerminating(ctx, before, instance, now)
	}
	return err
}

// ownNamespace returns the namespace of the instance, nil if it is gone or never belonged to
// this instance. The cache of a new leader may not show yet what its predecessor created, so
// the API server confirms its absence.
func (d *deletion) ownNamespace(ctx context.Context, instance *bergv1.ChallengeInstance) (*corev1.Namespace, error) {
	owner := manifests.OwnerOf(instance)
	ns, err := d.observeNamespace(ctx, instance)
	if err != nil || ns != nil && owner.Owns(ns) {
		return ns, err
	}
	if instance.Status.InstanceID == "" {
		// The ID is persisted before the first object. If this one were out of date, the status
		// could not be written.
		return nil, nil
	}
	ns = &corev1.Namespace{}
	err = d.Live.Get(ctx, types.NamespacedName{Name: manifests.NamespaceName(instance.Spec.OwnerID)}, ns)
	if err != nil {
		return nil, apply.IgnoreAbsent(err)
	}
	if !owner.Owns(ns) {
		return nil, nil
	}
	return ns, nil
}

// sweep deletes what the deletion of the namespace left. Kubernetes deletes the kinds that the
// API server serves. Just after its start the API server does not know custom resources yet,
// so they can outlive their namespace, and would block the next instance of the owner.
func (d *deletion) sweep(ctx context.Context, instance *bergv1.ChallengeInstance) error {
	owner, ns := manifests.OwnerOf(instance), manifests.NamespaceName(instance.Spec.OwnerID)
	errs := []error{
		apply.Sweep(ctx, d.Writer, owner, &gatewayv1.HTTPRouteList{}, ns),
		apply.Sweep(ctx, d.Writer, owner, &gatewayv1.TLSRouteList{}, ns),
	}
	if d.Config.Challenge.NetworkPolicy.Cilium() {
		errs = append(errs, apply.Sweep(ctx, d.Writer, owner, &ciliumv2.CiliumNetworkPolicyList{}, ns))
	}
	return errors.Join(errs...)
}
