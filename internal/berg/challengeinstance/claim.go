package challengeinstance

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/identity"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// A prepared instance is a ChallengeInstance in the operator's namespace. An instance of a player takes it over in three writes:
//
//	claim      (admitter)   status.claimedBy of the prepared instance, with its resource version: one instance alone can get it
//	start      (admitter)   status of the player's instance: identity, namespace and content of the prepared one
//	handOver   (Reconciler) the prepared instance is deleted; its finalizer leaves the namespace to its new instance
//
// After the first write nothing but the claim decides. If the process ends before the second one, the next round repeats it. If
// the player's instance is deleted first, the prepared instance is deleted too, with its namespace.

// taker is what became of the instance that claimed a prepared one.
type taker int

const (
	// takerGone: there is none, it is gone or ends without having started, or it has started without the prepared instance.
	takerGone taker = iota
	// takerWaits: the admitter has not started it yet.
	takerWaits
	// takerHasIt: the namespace is its own.
	takerHasIt
)

// observeTaker asks the API server, because the answer decides about a namespace.
func (r *Reconciler) observeTaker(ctx context.Context, prepared *bergv1.ChallengeInstance) (taker, error) {
	claim := prepared.Status.ClaimedBy
	if claim == nil {
		return takerGone, nil
	}
	var found bergv1.ChallengeInstanceList
	err := r.Live.List(ctx, &found, client.InNamespace(claim.Namespace), client.MatchingFields{metav1.ObjectNameField: claim.Name})
	if err != nil || len(found.Items) == 0 {
		return takerGone, err
	}
	switch i := &found.Items[0]; {
	case i.UID != claim.UID:
		return takerGone, nil
	case i.Status.PreparedFrom == prepared.UID:
		return takerHasIt, nil
	// It was started without this prepared instance, or never will be. The namespace has no owner, and ends with the prepared
	// instance.
	case i.Status.InstanceID != "" || !isLive(i):
		return takerGone, nil
	}
	return takerWaits, nil
}

// handOver deletes a prepared instance that was claimed, as soon as it is certain who has its namespace. No object is written
// for it any more. Its finalize asks observeTaker again: between this deletion and the removal of the finalizer the answer cannot
// change back, since a start is never undone.
func (r *Reconciler) handOver(ctx context.Context, prepared *bergv1.ChallengeInstance) error {
	taker, err := r.observeTaker(ctx, prepared)
	if err == nil && taker != takerWaits {
		err = apply.Delete(ctx, r.Client, prepared)
	}
	if err == nil {
		err = reconcile.ErrDeferred
	}
	return err
}

// claimSettled passes instances that take over a prepared one or end: then its claim leads to a deletion.
var claimSettled = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*bergv1.ChallengeInstance), e.ObjectNew.(*bergv1.ChallengeInstance)
		return isLive(before) && !isLive(after) || before.Status.PreparedFrom != after.Status.PreparedFrom
	},
}

// claimed maps an instance to the prepared one that it has claimed.
func (r *Reconciler) claimed(ctx context.Context, o client.Object) []ctrl.Request {
	return r.requests(ctx, indexClaim, string(o.GetUID()), func(client.Object) bool { return true })
}

// grantPods makes sure of the right that notifyPods needs, in the namespace of a prepared instance. The right is bound while the
// namespace has no pod. Without it a takeover still works, but the kubelet looks for the flag by itself, seconds later.
func (r *Reconciler) grantPods(ctx context.Context, in manifests.Inputs, namespace types.UID) error {
	if _, known := r.granted.Get(namespace); known || !in.Unclaimed || r.PodAccess == nil {
		return nil
	}
	if err := r.PodAccess.Grant(ctx, in.UID, in.Namespace()); err != nil {
		return fmt.Errorf("bind the right to notify pods of their flag: %w", err)
	}
	r.granted.Add(namespace, true)
	return nil
}

// notifyPods adds the owner to the pods of an instance that took over a prepared one. The change makes the kubelet look for the
// flag. It returns the time until the kubelet is to look again.
func (r *Reconciler) notifyPods(ctx context.Context, o status.Observed, now time.Time) (delay time.Duration, err error) {
	pods, delay := status.ToNotify(o, now)
	for _, p := range pods {
		change, err := json.Marshal(map[string]any{"metadata": map[string]any{
			// The UID is a precondition: a pod of the same name that replaced this one is left alone.
			"uid": p.UID, "labels": manifests.OwnerLabels(o.Instance),
			"annotations": map[string]string{bergv1.AnnotationFlagAt: now.UTC().Format(time.RFC3339Nano), manifests.AnnotationSafeToEvict: "false"},
		}})
		if err == nil {
			target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
			err = r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, change), client.DisableReadYourWritesConsistency)
		}
		if identity.LacksRight(err) { // its node looks for the flag by itself, after more than ten seconds
			reconcile.Warning(r.Events, o.Instance, bergv1.ReasonRefused, actionObserve, fmt.Sprintf(
				"The operator may not notify pod %s of its flag: bind the role of config/berg/warm to it", p.Name))
			return 0, nil
		}
		if err != nil && !apply.Absent(err) && !apierrors.IsConflict(err) {
			return 0, fmt.Errorf("add the owner to pod %s: %w", p.Name, err)
		}
	}
	return delay, nil
}

// writeUnlessExists writes the objects with the flag. While a prepared instance has no flag, existing objects stay: it may have
// been taken over since this reconciliation began, and the flag have been written.
func writeUnlessExists(unclaimed bool) func(context.Context, apply.Writer, ownership.Owner, client.Object) (client.Object, error) {
	if !unclaimed {
		return nil
	}
	return func(ctx context.Context, w apply.Writer, owner ownership.Owner, desired client.Object) (client.Object, error) {
		live := desired.DeepCopyObject().(client.Object)
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(desired), live); err == nil && owner.Owns(live) && live.GetDeletionTimestamp() == nil {
			return live, nil
		} else if apply.IgnoreAbsent(err) != nil {
			return nil, err
		}
		return apply.Apply(ctx, w, owner, desired)
	}
}
