package challengeinstance

import (
	"cmp"
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

func listInstances() client.ObjectList { return &bergv1.ChallengeInstanceList{} }

// isNew reports whether an instance was started and has never been ready, and a player or a solver waits for it.
func isNew(o client.Object) bool {
	return isBuilt(o) && o.(*bergv1.ChallengeInstance).Status.ReadyAt == nil && o.GetLabels()[bergv1.LabelPrepared] == ""
}

func isLive(o client.Object) bool { return o.GetDeletionTimestamp() == nil }

func isEnding(o client.Object) bool { return !isLive(o) }

// changes passes changes by users, and none of the status.
var changes = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, reconcile.Replaced)

// goneOr passes events of objects that are gone, so that their state in memory is forgotten, and events of objects that the
// filter selects.
func goneOr(match func(client.Object) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return match(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return match(e.ObjectNew) },
	}
}

func (r *Reconciler) requests(ctx context.Context, index, value string, match func(client.Object) bool) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, listInstances(), match, client.MatchingFields{index: value})
}

// allBuilt maps every object to all instances that were started.
func (r *Reconciler) allBuilt(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, listInstances(), isBuilt)
}

// ofNamespace maps a namespace, or an object in one, to those instances that it is for and a
// filter selects.
func (r *Reconciler) ofNamespace(match func(client.Object) bool) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
		name := cmp.Or(o.GetNamespace(), o.GetName())
		if !strings.HasPrefix(name, manifests.NamespacePrefix) {
			return nil
		}
		return r.requests(ctx, indexNamespace, name, match)
	}
}

// challengeChanged passes changes of the content that instances are built from. A Challenge that was deleted and created
// again has its first generation again, so its UID counts, too.
var challengeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || status.Frozen(e.ObjectOld) != status.Frozen(e.ObjectNew) || reconcile.Replaced.Update(e)
	},
}

func newRequest(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// isBuilt reports whether an instance was started and is not being deleted.
func isBuilt(o client.Object) bool {
	return isLive(o) && o.(*bergv1.ChallengeInstance).Status.InstanceID != ""
}

// podChanged passes changes of a pod that the status of an instance shows. The status does not show that a pod was
// scheduled, or that its image is being pulled.
var podChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return status.NewPodView(e.ObjectOld.(*corev1.Pod)) != status.NewPodView(e.ObjectNew.(*corev1.Pod))
	},
}

// newObject passes objects that are created.
var newObject = predicate.Funcs{
	UpdateFunc: func(event.UpdateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// failureChanged passes changes of the text of an event, not of its count.
var failureChanged = predicate.Funcs{
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.(*eventsv1.Event).Note != e.ObjectNew.(*eventsv1.Event).Note
	},
}

// refusalChanged passes changes of the refusal in the status of a Deployment, and no other change of that status.
var refusalChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !status.SameRefusal(e.ObjectOld.(*appsv1.Deployment), e.ObjectNew.(*appsv1.Deployment))
	},
}

// sandboxRepaired passes a pod whose sandbox was refused and exists now. A pod without a refusal is not passed: it would
// enqueue each instance one more time while it starts.
func (r *Reconciler) sandboxRepaired(ctx context.Context) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if status.SandboxMade(e.ObjectOld.(*corev1.Pod)) || !status.SandboxMade(e.ObjectNew.(*corev1.Pod)) {
				return false
			}
			failures, err := r.observeSandboxes(ctx, e.ObjectNew.GetNamespace())
			return err == nil && failures[e.ObjectNew.GetUID()] != ""
		},
	}
}
