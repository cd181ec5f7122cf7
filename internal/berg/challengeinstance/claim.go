package challengeinstance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/admission"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/revisions"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
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

// isPrepared reports whether the operator made an instance for players to come. Only administrators and the operator may write
// in its namespace, so the label can be trusted there.
func (r *Reconciler) isPrepared(o client.Object) bool {
	return o.GetNamespace() == r.Namespace && o.GetLabels()[bergv1.LabelPrepared] != ""
}

// claim makes sure that an instance alone takes over a prepared one, and returns it with its content. It returns nil if that
// cannot be taken over any more: then the instance starts without it.
func (a *admitter) claim(ctx context.Context, w *write, cfg config.Challenge, now time.Time) (*bergv1.ChallengeInstance, *status.Adoption, error) {
	prepared := &bergv1.ChallengeInstance{}
	if err := a.Starts.Get(ctx, w.takes, prepared); err != nil {
		return nil, nil, apply.IgnoreAbsent(err)
	}
	by := &bergv1.InstanceReference{Namespace: w.Instance.Namespace, Name: w.Instance.Name, UID: w.Instance.UID}
	claimed := prepared.Status.ClaimedBy != nil
	if claimed && *prepared.Status.ClaimedBy != *by || !claimed && !status.Claimable(prepared) {
		return nil, nil, nil
	}
	content, err := a.Revisions.Read(ctx, prepared.Status.ChallengeRevision)
	if unreadable := (*revisions.UnreadableError)(nil); errors.As(err, &unreadable) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if !claimed {
		if !content.Equals(manifests.NewSnapshot(w.Challenge, cfg)) {
			return nil, nil, nil
		}
		before := prepared.DeepCopy()
		prepared.Status.ClaimedBy = by
		if err := a.frame.PatchStatus(ctx, before, prepared, now); err != nil {
			return nil, nil, fmt.Errorf("claim the prepared instance %s: %w", w.takes, err)
		}
	}
	return prepared, &status.Adoption{Snapshot: *content, Revision: prepared.Status.ChallengeRevision}, nil
}

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
	by := prepared.Status.ClaimedBy
	if by == nil {
		return takerGone, nil
	}
	var found bergv1.ChallengeInstanceList
	err := r.Live.List(ctx, &found, client.InNamespace(by.Namespace), client.MatchingFields{metav1.ObjectNameField: by.Name})
	if err != nil || len(found.Items) == 0 {
		return takerGone, err
	}
	switch i := &found.Items[0]; {
	case i.UID != by.UID:
		return takerGone, nil
	case i.Status.PreparedFrom == prepared.UID:
		return takerHasIt, nil
	case i.Status.InstanceID != "" || !isLive(i):
		return takerGone, nil
	}
	return takerWaits, nil
}

// handOver deletes a prepared instance that was claimed, as soon as it is certain who has its namespace. No object is written
// for it any more.
func (r *Reconciler) handOver(ctx context.Context, prepared *bergv1.ChallengeInstance) error {
	taker, err := r.observeTaker(ctx, prepared)
	if err == nil && taker != takerWaits {
		err = apply.IgnoreAbsent(r.Client.Delete(ctx, prepared, client.Preconditions{UID: ptr.To(prepared.UID)}))
	}
	if err == nil {
		err = reconcile.ErrDeferred
	}
	return err
}

// claimEnds passes instances that end. A prepared instance that one of them has claimed is of no use.
var claimEnds = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return isLive(e.ObjectOld) && !isLive(e.ObjectNew) },
}

// claimed maps an instance to the prepared one that it has claimed.
func (r *Reconciler) claimed(ctx context.Context, o client.Object) []ctrl.Request {
	return r.requests(ctx, indexClaim, string(o.GetUID()), func(client.Object) bool { return true })
}

// grantPods makes sure of the right that notifyPods needs, in the namespace of a prepared instance.
func (r *Reconciler) grantPods(ctx context.Context, in manifests.Inputs, namespace types.UID) error {
	if _, known := r.granted.Get(namespace); known || !in.Prepared || r.PodAccess == nil {
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
func (r *Reconciler) notifyPods(ctx context.Context, o status.Observed, now time.Time) (again time.Duration, err error) {
	pods, again := status.ToNotify(o, now)
	for _, p := range pods {
		change, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": p.UID, "labels": manifests.OwnerLabels(o.Instance),
			"annotations": map[string]string{bergv1.AnnotationFlagAt: now.UTC().Format(time.RFC3339Nano)},
		}})
		if err == nil {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
			err = r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, change), client.DisableReadYourWritesConsistency)
		}
		if err != nil && !apply.Absent(err) && !apierrors.IsConflict(err) {
			return 0, fmt.Errorf("add the owner to pod %s: %w", p.Name, err)
		}
	}
	return again, nil
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

// drain deletes the prepared instances whose slots players wait for. Their end leads to the next round.
func (a *admitter) drain(ctx context.Context, r round) error {
	var errs []error
	for _, i := range admission.Drained(r.all, r.decisions) {
		prepared := &bergv1.ChallengeInstance{}
		err := a.Starts.Get(ctx, i.Key, prepared)
		if err == nil && prepared.UID == i.UID && isLive(prepared) && prepared.Status.ClaimedBy == nil {
			err = a.Client.Delete(ctx, prepared, client.Preconditions{UID: ptr.To(prepared.UID), ResourceVersion: ptr.To(prepared.ResourceVersion)})
		}
		if !apierrors.IsConflict(err) { // an instance may have claimed it
			errs = append(errs, apply.IgnoreAbsent(err))
		}
	}
	return errors.Join(errs...)
}
