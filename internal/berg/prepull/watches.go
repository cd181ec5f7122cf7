package prepull

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/clockskew"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// everything is the one request: all pulls together are paced.
var everything = ctrl.Request{NamespacedName: types.NamespacedName{Name: "images"}}

// SetupWithManager opens the watches. The only timers are the windows of Challenges, the delays
// after failures and the timeout of a pull, and a jump of the clock enqueues all.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.backoff, r.store = outcome.NewBackoff(), newStore()
	failures.Watch(seeFailing, mgr.Elected())
	if err := reconcile.Open(ctx, mgr.GetCache(), &corev1.Node{}, &nodev1.RuntimeClass{}); err != nil {
		return err
	}
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{everything}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("image-prepull").
		Watches(&bergv1.Challenge{}, enqueue, builder.WithPredicates(challengeChanged)).
		Watches(&corev1.ConfigMap{}, enqueue, builder.WithPredicates(wantedChanged)).
		Watches(&corev1.Node{}, enqueue, builder.WithPredicates(nodeChanged)).
		Watches(&nodev1.RuntimeClass{}, enqueue).
		Watches(&corev1.Namespace{}, enqueue, builder.WithPredicates(inNamespaces)).
		Watches(&appsv1.Deployment{}, enqueue, builder.WithPredicates(inNamespaces, refusalChanged)).
		Watches(&corev1.Pod{}, enqueue, builder.WithPredicates(inNamespaces, podChanged)).
		WatchesRawSource(clockskew.Source(r.Clock, enqueue)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1, // it is one request
			ReconciliationTimeout:   reconcile.Timeout,
		}).
		Complete(reconcile.New(r.Clock, r.backoff, reconcileMetrics, r.reconcile))
}

// inNamespaces accepts the namespaces in which images are pulled, and the objects in them.
var inNamespaces = predicate.NewPredicateFuncs(func(o client.Object) bool {
	return strings.HasPrefix(o.GetNamespace(), NamespacePrefix) || o.GetNamespace() == "" && strings.HasPrefix(o.GetName(), NamespacePrefix)
})

// challengeChanged accepts changes of a spec, and ignores status.
var challengeChanged = onChange(func(before, after client.Object) bool {
	return before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil)
})

// wantedChanged passes whose images a platform wants.
var wantedChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return asked(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return asked(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetLabels()[bergv1.LabelPrepullChallenge] != e.ObjectNew.GetLabels()[bergv1.LabelPrepullChallenge]
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func asked(o client.Object) bool {
	_, labelled := o.GetLabels()[bergv1.LabelPrepullChallenge]
	return labelled
}

// nodeChanged passes whether a node takes pods, and which images it lists.
var nodeChanged = onChange(func(before, after client.Object) bool {
	b, a := before.(*corev1.Node), after.(*corev1.Node)
	return b.UID != a.UID || (b.DeletionTimestamp == nil) != (a.DeletionTimestamp == nil) || view.IsReady(b) != view.IsReady(a) ||
		!equality.Semantic.DeepEqual(b.Labels, a.Labels) || !equality.Semantic.DeepEqual(b.Spec, a.Spec) ||
		!equality.Semantic.DeepEqual(b.Status.Images, a.Status.Images)
})

// refusalChanged accepts changes of why the pod of a pull is not created.
var refusalChanged = onChange(func(before, after client.Object) bool {
	return !status.SameRefusal(before.(*appsv1.Deployment), after.(*appsv1.Deployment))
})

// podChanged accepts changes in the progress of a pull.
var podChanged = onChange(func(before, after client.Object) bool {
	b, a := before.(*corev1.Pod), after.(*corev1.Pod)
	return !equality.Semantic.DeepEqual(b.Status, a.Status)
})

// onChange passes some updates, and that objects come and go.
func onChange(match func(before, after client.Object) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return match(e.ObjectOld, e.ObjectNew) }}
}

// TrimNode keeps the fields of a node that show whether it takes pods, which images it lists, and which
// features its runtimes support. Heartbeats change a node every few seconds. Without their times two versions are equal for
// nodeChanged, which then passes no event.
func TrimNode(n *corev1.Node) {
	n.ManagedFields, n.Annotations, n.OwnerReferences = nil, nil, nil
	n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	for i := range n.Spec.Taints {
		n.Spec.Taints[i].TimeAdded = nil
	}
	status := corev1.NodeStatus{RuntimeHandlers: nodes.Handlers(n)}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	for _, i := range n.Status.Images {
		status.Images = append(status.Images, corev1.ContainerImage{Names: i.Names})
	}
	n.Status = status
}

// TrimPod keeps the fields of a pulling pod that show its progress, and not the fields that are
// kept of pods of instances.
func TrimPod(p *corev1.Pod) {
	p.ManagedFields, p.Annotations, p.OwnerReferences = nil, nil, nil
	status := corev1.PodStatus{}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			status.Conditions = append(status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	if i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == containerName }); i >= 0 {
		state := p.Status.ContainerStatuses[i].State
		trimmed := corev1.ContainerStatus{Name: containerName}
		switch {
		case state.Running != nil:
			trimmed.State.Running = &corev1.ContainerStateRunning{}
		case state.Terminated != nil: // its message comes from the runtime, and is long
			trimmed.State.Terminated = &corev1.ContainerStateTerminated{Reason: state.Terminated.Reason, ExitCode: state.Terminated.ExitCode}
		case state.Waiting != nil:
			trimmed.State.Waiting = state.Waiting
		}
		status.ContainerStatuses = []corev1.ContainerStatus{trimmed}
	}
	p.Spec, p.Status = corev1.PodSpec{}, status
}
