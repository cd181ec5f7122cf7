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

// Recorder keeps something of instances that end.
type Recorder interface {
	// Keep is told of an instance that is being deleted, at each pass, until Forget. It reports
	// whether the namespace may go now; if not, wake is called when it may, which is soon. It does
	// not block.
	Keep(ctx context.Context, key types.NamespacedName, uid types.UID, about func() Ending, wake func()) (ready bool)
	// Forget is called when the instance is gone.
	Forget(key types.NamespacedName)
}

// Ending is an instance that ends, as it was before anything of it was taken away. It is not to
// be changed.
type Ending struct {
	Instance *bergv1.ChallengeInstance
	// Namespace is nil where there is none, or none any more.
	Namespace *corev1.Namespace
	Reason    bergv1.EndReason
	// Challenge is the one that the instance names, with its namespace.
	Challenge bergv1.ChallengeReference
	// StaticFlag is that of the Challenge, "" where it has none or is gone.
	StaticFlag string
	// ExpiresAt is nil while the instance is frozen, and where it never started.
	ExpiresAt *metav1.Time
}

// errBeingKept puts a deletion aside: the Keeper calls it again.
var errRecordPending = fmt.Errorf("what is left of the instance is being read: %w", reconcile.ErrDeferred)

// keep reports whether the namespace of an instance may go as far as the Keeper is concerned.
func (d *deletion) keepRecord(ctx context.Context, instance *bergv1.ChallengeInstance, ns *corev1.Namespace) (ready bool) {
	// A check tells by itself what became of its instance.
	if d.Recorder == nil || instance.Labels[bergv1.LabelCheck] != "" {
		return true
	}
	key := client.ObjectKeyFromObject(instance)
	return d.Recorder.Keep(ctx, key, instance.UID,
		func() Ending { return d.ending(ctx, instance.DeepCopy(), ns) },
		func() { d.calls.add(ctrl.Request{NamespacedName: key}) })
}

func (d *deletion) ending(ctx context.Context, instance *bergv1.ChallengeInstance, ns *corev1.Namespace) Ending {
	e := Ending{
		Instance: instance, Namespace: ns.DeepCopy(),
		Reason:    bergv1.EndReason(cmp.Or(instance.Spec.TerminationReason, d.apparentReason(ctx, instance))),
		ExpiresAt: status.ExpiresAt(instance, d.Config.Challenge),
	}
	where := d.challengeKey(instance)
	e.Challenge = bergv1.ChallengeReference{Namespace: where.Namespace, Name: where.Name}
	c, err := d.observeCandidate(ctx, instance)
	if err != nil {
		return e // only a cache that is shutting down fails
	}
	if c.Challenge != nil {
		e.StaticFlag = c.Challenge.Spec.Flag
	}
	if e.Reason == bergv1.EndReason(bergv1.TerminationAdmin) && d.Config.Challenge.WithdrawalPolicy == config.WithdrawalStop && status.Withdrawn(c) {
		e.Reason = bergv1.EndChallengeDeleted
	}
	return e
}
