package challengeinstance

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Recorder stores a record of an instance that ends.
type Recorder interface {
	// Keep is called in each reconciliation of an instance that is being deleted, until Forget.
	// It reports whether the namespace may be deleted now. If not, it calls enqueue as soon as
	// that changes. It does not block.
	Keep(ctx context.Context, key types.NamespacedName, uid types.UID, about func() Ending, requeue func()) (ready bool)
	// Forget is called when the instance is gone.
	Forget(key types.NamespacedName)
}

// Ending is an instance that ends, as it was before any of its objects was deleted. It must not be modified.
type Ending struct {
	Instance *bergv1.ChallengeInstance
	// Namespace is nil if it does not exist or no longer exists.
	Namespace *corev1.Namespace
	Reason    bergv1.EndReason
	// Challenge names the Challenge of the instance, always with its namespace.
	Challenge bergv1.ChallengeReference
	// StaticFlags are the Challenge's own flags, now and at the start; "" is none.
	StaticFlags []string
	// FlagLost: the content that the instance was started with cannot be read. The containers may know a flag that the
	// operator does not know.
	FlagLost bool
	// ExpiresAt is nil while the instance is frozen, and if it never started.
	ExpiresAt *metav1.Time
}

// Flags returns all flags that the containers may know; "" is none.
func (e Ending) Flags() []string { return append([]string{e.Instance.Spec.Flag}, e.StaticFlags...) }

// errRecordPending defers a deletion until the Recorder enqueues the instance again.
var errRecordPending = fmt.Errorf("the record of the instance is being read: %w", reconcile.ErrDeferred)

// keepRecord reports whether the Recorder allows the deletion of the namespace. It is asked in every reconciliation of a
// deletion, because a new leader has no record in progress.
func (r *Reconciler) keepRecord(ctx context.Context, instance *bergv1.ChallengeInstance, ns *corev1.Namespace) (ready bool) {
	// A check reports by itself how its instance ended, and a prepared instance had no player.
	if r.Recorder == nil || instance.Labels[bergv1.LabelCheck] != "" || r.isPrepared(instance) {
		return true
	}
	key := client.ObjectKeyFromObject(instance)
	return r.Recorder.Keep(ctx, key, instance.UID,
		// The function is called only if the Recorder has no record of this instance yet: it reads the Challenge and the content.
		func() Ending { return r.ending(ctx, instance.DeepCopy(), ns) },
		func() { r.enqueue(ctrl.Request{NamespacedName: key}) })
}

// ending returns the instance as a Recorder needs it. Both flags of the Challenge count, now and at the start: containers
// may have printed either.
func (r *Reconciler) ending(ctx context.Context, instance *bergv1.ChallengeInstance, ns *corev1.Namespace) Ending {
	e := Ending{
		Instance: instance, Namespace: ns.DeepCopy(),
		Reason:    bergv1.EndReason(cmp.Or(instance.Spec.TerminationReason, r.apparentReason(ctx, instance))),
		ExpiresAt: status.ExpiresAt(instance, r.Config.Challenge),
	}
	challengeKey := r.challengeKey(instance)
	e.Challenge = bergv1.ChallengeReference{Namespace: challengeKey.Namespace, Name: challengeKey.Name}
	c, err := r.observeCandidate(ctx, instance)
	// Without the flags nothing can be redacted. The Recorder then stores no log.
	if err != nil {
		e.FlagLost = true
		return e
	}
	e.FlagLost = c.Unreadable != nil
	if c.Challenge != nil {
		e.StaticFlags = append(e.StaticFlags, c.Challenge.Spec.Flag)
	}
	if c.Pinned != nil {
		e.StaticFlags = append(e.StaticFlags, c.Pinned.Flag)
	}
	if e.Reason == bergv1.EndReason(bergv1.TerminationAdmin) && r.Config.Challenge.WithdrawalPolicy == config.WithdrawalStop && status.Withdrawn(c) {
		e.Reason = bergv1.EndChallengeDeleted
	}
	return e
}
