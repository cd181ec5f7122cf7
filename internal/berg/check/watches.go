package check

import (
	"context"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/clockskew"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// SetupWithManager opens the watches. The only timers are the schedules and the timeouts, and a
// jump of the clock enqueues all.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.kind = r.newKind()
	r.queueChanged = make(chan event.GenericEvent, 1)
	var reader client.Reader = mgr.GetCache()
	overdue.Watch(r.observeOverdue(reader), mgr.Elected())
	perChallenge.Watch(observeSolvable(reader), mgr.Elected())
	if err := reconcile.Open(ctx, mgr.GetCache(), &batchv1.Job{}); err != nil {
		return err
	}
	inNamespace := handler.EnqueueRequestsFromMapFunc(r.ofNamespace)
	return ctrl.NewControllerManagedBy(mgr).
		Named("challengecheck").
		For(&bergv1.ChallengeCheck{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.Replaced, reconcile.StatusLost, endingBegins, runCleared, finalizer.TakenOff(bergv1.CheckFinalizer)))).
		Watches(&bergv1.ChallengeCheck{}, handler.EnqueueRequestsFromMapFunc(r.resting), builder.WithPredicates(capacityFreed)).
		Watches(&bergv1.Challenge{}, handler.EnqueueRequestsFromMapFunc(r.ofChallenge), builder.WithPredicates(challengeChanged)).
		Watches(&bergv1.ChallengeInstance{}, handler.EnqueueRequestsFromMapFunc(r.ofInstance), builder.WithPredicates(progressed)).
		Watches(&bergv1.ChallengeInstance{}, handler.EnqueueRequestsFromMapFunc(r.every), builder.WithPredicates(playersChanged)).
		Watches(&corev1.Namespace{}, inNamespace).
		Watches(&batchv1.Job{}, inNamespace).
		Watches(&corev1.Pod{}, inNamespace, builder.WithPredicates(solverChanged)).
		WatchesRawSource(source.Channel(r.queueChanged, handler.EnqueueRequestsFromMapFunc(r.resting))).
		WatchesRawSource(clockskew.Source(r.Clock, handler.EnqueueRequestsFromMapFunc(r.every))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1, // so that no two reconciliations count at the same time
			ReconciliationTimeout:   reconcile.Timeout,
		}).
		Complete(r.kind.Reconciler())
}

func listChecks() client.ObjectList { return &bergv1.ChallengeCheckList{} }

// every maps every event to all ChallengeChecks.
func (r *Reconciler) every(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, listChecks(), nil)
}

// resting maps every event to the ChallengeChecks without a check in progress.
func (r *Reconciler) resting(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, listChecks(), func(o client.Object) bool {
		return o.(*bergv1.ChallengeCheck).Status.Run == nil
	})
}

// ofChallenge maps a Challenge to its checks, and to all that wait: one of them may stand behind a
// check that cannot be made any more.
func (r *Reconciler) ofChallenge(ctx context.Context, o client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, listChecks(), func(c client.Object) bool {
		own := c.(*bergv1.ChallengeCheck)
		return own.Status.Run == nil || r.challengeKey(own) == client.ObjectKeyFromObject(o)
	})
}

// ofInstance maps an instance of a check to it.
func (r *Reconciler) ofInstance(_ context.Context, o client.Object) []ctrl.Request {
	owner := controllingCheck(o)
	if owner == nil {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}}}
}

// ofNamespace maps a solver's namespace, or an object in one, to the ChallengeCheck.
func (r *Reconciler) ofNamespace(ctx context.Context, o client.Object) []ctrl.Request {
	name := o.GetNamespace()
	if name == "" {
		name = o.GetName()
	}
	uid, ours := strings.CutPrefix(name, NamespacePrefix)
	if !ours {
		return nil
	}
	return reconcile.Requests(ctx, r.Client, listChecks(), func(c client.Object) bool { return string(c.GetUID()) == uid })
}

// endingBegins passes the updates by which a ChallengeCheck begins to be deleted.
var endingBegins = reconcile.Updates(func(before, after client.Object) bool {
	return (before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil)
})

// runCleared passes the end of a check: it may be due again already.
var runCleared = reconcile.Updates(func(before, after client.Object) bool {
	return before.(*bergv1.ChallengeCheck).Status.Run != nil && after.(*bergv1.ChallengeCheck).Status.Run == nil
})

// capacityFreed accepts events that may let another check start.
var capacityFreed = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return true },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return runCleared.Update(e) || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
	},
}

// challengeChanged accepts changes of fields that checks depend on.
var challengeChanged = onChange(func(before, after client.Object) bool {
	return before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() ||
		before.GetAnnotations()[bergv1.AnnotationFrozen] != after.GetAnnotations()[bergv1.AnnotationFrozen]
})

// progressed accepts changes in the status of an instance of a check. Most instances are players'.
var progressed = predicate.And(ofCheck, onChange(func(before, after client.Object) bool {
	b, a := before.(*bergv1.ChallengeInstance), after.(*bergv1.ChallengeInstance)
	return b.UID != a.UID || (b.DeletionTimestamp == nil) != (a.DeletionTimestamp == nil) || !equality.Semantic.DeepEqual(b.Status, a.Status)
}))

// ofCheck passes the instances that a ChallengeCheck owns.
var ofCheck = predicate.NewPredicateFuncs(func(o client.Object) bool { return controllingCheck(o) != nil })

// controllingCheck is the ChallengeCheck that owns an instance, nil if none does.
func controllingCheck(o client.Object) *metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "ChallengeCheck" {
		return owner
	}
	return nil
}

// playersChanged accepts that a player begins or ceases to wait for capacity.
var playersChanged = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return !e.IsInInitialList && isWaiting(e.Object) },
	GenericFunc: func(event.GenericEvent) bool { return false },
	DeleteFunc:  func(e event.DeleteEvent) bool { return isWaiting(e.Object) },
	UpdateFunc:  func(e event.UpdateEvent) bool { return isWaiting(e.ObjectOld) != isWaiting(e.ObjectNew) },
}

// isWaiting is waitsForCapacity for the object of an event.
func isWaiting(o client.Object) bool { return waitsForCapacity(o.(*bergv1.ChallengeInstance)) }

// solverChanged accepts changes in the progress of solvers' pods.
var solverChanged = onChange(func(before, after client.Object) bool {
	b, a := before.(*corev1.Pod), after.(*corev1.Pod)
	return b.Status.Phase != a.Status.Phase || !equality.Semantic.DeepEqual(solverState(b), solverState(a)) ||
		disrupted(b) != disrupted(a) || podProblem(b, solverState(b)) != podProblem(a, solverState(a))
})

// onChange passes some updates, and that objects come and go.
func onChange(match func(before, after client.Object) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return match(e.ObjectOld, e.ObjectNew) }}
}

// TrimPod keeps the fields of a solver's pod that show its progress, and not the fields that are
// kept of pods of instances.
func TrimPod(p *corev1.Pod) {
	p.ManagedFields, p.Annotations, p.OwnerReferences = nil, nil, nil
	status := corev1.PodStatus{Phase: p.Status.Phase, Reason: p.Status.Reason, Message: p.Status.Message}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled || c.Type == corev1.DisruptionTarget {
			status.Conditions = append(status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	if i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == containerName }); i >= 0 {
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, State: p.Status.ContainerStatuses[i].State}}
	}
	p.Spec, p.Status = corev1.PodSpec{}, status
}

// TrimJob drops fields that the operator does not read, above all the solver's environment. A variable of an author may hold a
// password.
func TrimJob(j *batchv1.Job) {
	j.ManagedFields = nil
	j.Spec = batchv1.JobSpec{}
}
