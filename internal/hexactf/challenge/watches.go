package challenge

import (
	"cmp"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/clockskew"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The indexes of the cache.
const (
	// indexDefinition finds the challenges of a definition that were not started, by its name.
	indexDefinition = "definition"
	// indexPartOf finds challenges, and their pods, by the label of the objects.
	indexPartOf = "partOf"
)

// SetupWithManager opens the watches. Each event enqueues one challenge, or all challenges of a definition. The only
// timers are the expiry, the deadlines of a start, and the timeout for the broker.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.kind = r.newKind()
	r.deliveries.off = r.Publisher == nil
	r.endings = &endings{Access: r.Access, namespace: r.Namespace, all: map[types.UID]ending{}}
	if err := r.index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := r.registerGauges(ctx, mgr); err != nil {
		return err
	}
	if err := reconcile.Open(ctx, mgr.GetCache(), &hexactfv1.ChallengeDefinition{}, &appsv1.Deployment{},
		&corev1.Service{}, &corev1.Pod{}, &networkingv1.NetworkPolicy{}); err != nil {
		return err
	}
	owner := handler.EnqueueRequestsFromMapFunc(r.ofObject)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("challenge").
		For(&hexactfv1.Challenge{}, builder.WithPredicates(predicate.Or(changes, reconcile.StatusLost, finalizer.TakenOff(hexactfv1.Finalizer)), predicate.NewPredicateFuncs(isLive))).
		Watches(&hexactfv1.Challenge{}, terminating, builder.WithPredicates(changes, predicate.Not(predicate.NewPredicateFuncs(isLive)))).
		Watches(&hexactfv1.ChallengeDefinition{}, handler.EnqueueRequestsFromMapFunc(r.ofDefinition), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.Replaced))).
		Watches(&appsv1.Deployment{}, owner, builder.WithPredicates(predicate.Or(changes, availabilityChanged))).
		Watches(&networkingv1.NetworkPolicy{}, owner, builder.WithPredicates(changes)).
		// Services have no generation, so no change can be left out.
		Watches(&corev1.Service{}, owner).
		Watches(&corev1.Pod{}, owner, builder.WithPredicates(troubleChanged)).
		// The events of objects come twice: for live challenges, and with a lower priority for challenges that are being deleted.
		Watches(&appsv1.Deployment{}, r.stopping()).
		Watches(&corev1.Pod{}, r.stopping()).
		Watches(&networkingv1.NetworkPolicy{}, r.stopping(), builder.WithPredicates(changes)).
		WatchesRawSource(r.queue.source()).
		WatchesRawSource(clockskew.Source(r.Clock, handler.EnqueueRequestsFromMapFunc(r.withTimeout))).
		WithOptions(r.ControllerOptions()).
		Complete(r.kind.Reconciler())
	if err != nil {
		return err
	}
	if err := r.expiries().SetupWithManager(mgr); err != nil {
		return err
	}
	if r.Publisher == nil {
		return nil
	}
	return (&sender{Reconciler: r}).setup(mgr)
}

// index leaves out challenges with a snapshot: a change of their definition does not concern them.
func (r *Reconciler) index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &hexactfv1.Challenge{}, indexDefinition, func(o client.Object) []string {
		c := o.(*hexactfv1.Challenge)
		if c.Status.DefinitionSnapshot != nil {
			return nil
		}
		return []string{c.Spec.Definition}
	}); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &hexactfv1.Challenge{}, indexPartOf, func(o client.Object) []string {
		return []string{partOfLabel(o.GetName())}
	}); err != nil {
		return err
	}
	return indexer.IndexField(ctx, &corev1.Pod{}, indexPartOf, func(o client.Object) []string {
		if label := o.GetLabels()[hexactfv1.LabelPartOf]; label != "" {
			return []string{label}
		}
		return nil
	})
}

// ofObject maps an object to the live challenges that it may be part of. An object that has lost its label is found by
// its owner.
func (r *Reconciler) ofObject(ctx context.Context, o client.Object) []ctrl.Request {
	label := o.GetLabels()[hexactfv1.LabelPartOf]
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Challenge" {
			label = cmp.Or(partOfLabel(owner.Name), label)
		}
	}
	if label == "" {
		return nil
	}
	return reconcile.Requests(ctx, r.Client, listChallenges(), isLive, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexPartOf: label})
}

// ofDefinition maps a definition to the challenges that wait for it.
func (r *Reconciler) ofDefinition(ctx context.Context, o client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, listChallenges(), isLive, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexDefinition: o.GetName()})
}

// withTimeout lists the challenges that wait for a time: for the end of their start, or for the broker.
func (r *Reconciler) withTimeout(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, listChallenges(), func(o client.Object) bool {
		return !isLive(o) || o.(*hexactfv1.Challenge).Status.RunningAt == nil
	})
}

func isLive(o client.Object) bool { return o.GetDeletionTimestamp() == nil }

// terminatingPriority is lower than the priority of live challenges, for which players wait, and higher than the
// priority of challenges that exist when the operator starts.
const terminatingPriority = handler.LowPriority / 2

// terminating enqueues challenges that are being deleted.
var terminating = handler.Funcs{
	CreateFunc: func(_ context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		enqueueTerminating(queue, e.Object)
	},
	UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		enqueueTerminating(queue, e.ObjectNew)
	},
	DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		enqueueTerminating(queue, e.Object)
	},
}

func enqueueTerminating(queue workqueue.TypedRateLimitingInterface[ctrl.Request], o client.Object) {
	queue.(priorityqueue.PriorityQueue[ctrl.Request]).AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(terminatingPriority)},
		ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
}

// changes passes the writes of clients to everything but a status.
var changes = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, reconcile.Replaced)

// availabilityChanged passes the changes of a Deployment's status that change the status of its challenge.
var availabilityChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*appsv1.Deployment), e.ObjectNew.(*appsv1.Deployment)
		return available(before) != available(after) || whyNot("", before, nil) != whyNot("", after, nil)
	},
}

// troubleChanged accepts changes of a pod that change the status of a challenge. Scheduling a pod or pulling its
// image does not.
var troubleChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return trouble(e.Object.(*corev1.Pod)) != "" },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return trouble(e.ObjectOld.(*corev1.Pod)) != trouble(e.ObjectNew.(*corev1.Pod))
	},
	DeleteFunc: func(e event.DeleteEvent) bool { return trouble(e.Object.(*corev1.Pod)) != "" },
}

// TrimDeployment drops fields that the status of a challenge does not depend on. available and whyNot give the same answer as for
// the complete one.
func TrimDeployment(d *appsv1.Deployment) {
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Status.ObservedGeneration}
	for _, c := range d.Status.Conditions {
		switch c.Type {
		case appsv1.DeploymentAvailable:
			status.Conditions = append(status.Conditions, appsv1.DeploymentCondition{Type: c.Type, Status: c.Status})
		case appsv1.DeploymentReplicaFailure, appsv1.DeploymentProgressing:
			if c.Type == appsv1.DeploymentReplicaFailure || c.Reason == replicaSetCreateError {
				status.Conditions = append(status.Conditions, appsv1.DeploymentCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
			}
		}
	}
	d.Status = status
}

// TrimPod keeps only fields that the status of a challenge depends on. It keeps a pod's environment, which may hold a
// flag, out of the cache. whyNot and trouble give the same answer for the pod as for the complete one.
func TrimPod(p *corev1.Pod) {
	p.Annotations, p.OwnerReferences, p.ManagedFields = nil, nil, nil
	for name := range p.Labels {
		if name != hexactfv1.LabelPartOf && name != hexactfv1.LabelName && name != hexactfv1.LabelManagedBy {
			delete(p.Labels, name)
		}
	}
	p.Spec = corev1.PodSpec{}
	var status corev1.PodStatus
	if isOver(p) {
		status.Phase = p.Status.Phase
	}
	if trouble(p) != "" {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				status.Conditions = append(status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
			}
		}
		status.InitContainerStatuses = waiting(p.Status.InitContainerStatuses)
		status.ContainerStatuses = waiting(p.Status.ContainerStatuses)
	}
	p.Status = status
}

// waiting keeps of each status what explains a container that does not start.
func waiting(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for _, s := range all {
		if s.State.Waiting == nil {
			continue
		}
		trimmed := corev1.ContainerStatus{Name: s.Name, State: corev1.ContainerState{Waiting: s.State.Waiting}}
		if last := s.LastTerminationState.Terminated; last != nil {
			// The message that it wrote when it ended is dropped.
			trimmed.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: last.Reason, ExitCode: last.ExitCode}
		}
		kept = append(kept, trimmed)
	}
	return kept
}
