package application

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The indexes of the cache.
const (
	// IndexApplication finds the Deployments of an Application, by the name that they refer to. The controller of
	// Deployments uses it too.
	IndexApplication = "application"
	// indexProject finds the Applications of a Project, by the name that they refer to.
	indexProject = "project"
	// indexSecret finds the Applications that name a Secret.
	indexSecret = "secret"
)

// SetupWithManager opens the watches. Only the Poller has timers.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.kind = r.newKind()
	if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	perPhase.Watch(mgr.GetCache(), r.Clock, mgr.Elected())
	if err := reconcile.Open(ctx, mgr.GetCache(), &kibashipv1.Application{}, &kibashipv1.Deployment{}, &kibashipv1.Project{}); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("kibaship-application").
		For(&kibashipv1.Application{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, relabelled, reconcile.Replaced, reconcile.StatusLost, pushed, finalizer.TakenOff(kibashipv1.ApplicationFinalizer)))).
		Watches(&kibashipv1.Project{}, handler.EnqueueRequestsFromMapFunc(r.ofProject), builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, reconcile.Replaced, phaseChanged))).
		Watches(&kibashipv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(ofDeployment), builder.WithPredicates(reported)).
		WatchesRawSource(r.Secrets.Source(handler.EnqueueRequestsFromMapFunc(r.ofSecret))).
		WatchesRawSource(r.Poller.Source(&handler.EnqueueRequestForObject{})).
		WithOptions(r.ControllerOptions()).
		Complete(r.kind.Reconciler())
}

func index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &kibashipv1.Deployment{}, IndexApplication, func(o client.Object) []string {
		return []string{o.(*kibashipv1.Deployment).Spec.ApplicationRef.Name}
	}); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &kibashipv1.Application{}, indexProject, func(o client.Object) []string {
		return []string{o.(*kibashipv1.Application).Spec.ProjectRef.Name}
	}); err != nil {
		return err
	}
	return indexer.IndexField(ctx, &kibashipv1.Application{}, indexSecret, func(o client.Object) []string {
		var names []string
		for name := range rules.Secrets(&o.(*kibashipv1.Application).Spec) {
			names = append(names, name)
		}
		return names
	})
}

// relabelled accepts changes of the labels that an Application has from its Project. The write that puts on labels and
// finalizer is the operator's own, in a reconciliation that continues.
var relabelled = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	if !controllerutil.ContainsFinalizer(e.ObjectOld, kibashipv1.ApplicationFinalizer) && controllerutil.ContainsFinalizer(e.ObjectNew, kibashipv1.ApplicationFinalizer) {
		return false
	}
	before, after := e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()
	return before[kibashipv1.LabelProjectUUID] != after[kibashipv1.LabelProjectUUID] ||
		before[kibashipv1.LabelWorkspaceUUID] != after[kibashipv1.LabelWorkspaceUUID]
}}

// pushed accepts the annotation with which the receiver of webhooks announces a push.
var pushed = reconcile.Updates(func(before, after client.Object) bool {
	return before.GetAnnotations()[kibashipv1.AnnotationPushed] != after.GetAnnotations()[kibashipv1.AnnotationPushed]
})

// reported accepts the end of a Deployment whose states were sent: the deletion of its Application may wait for it.
var reported = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
	DeleteFunc: func(e event.DeleteEvent) bool { return e.Object.GetAnnotations()[kibashipv1.AnnotationReported] != "" },
}

func ofDeployment(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: o.(*kibashipv1.Deployment).Spec.ApplicationRef.Name}}}
}

// phaseChanged accepts changes of a Project that make it usable or unusable.
var phaseChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*kibashipv1.Project), e.ObjectNew.(*kibashipv1.Project)
	return before.Status.Phase != after.Status.Phase || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}}

func (r *Reconciler) ofProject(ctx context.Context, o client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &kibashipv1.ApplicationList{}, nil, client.MatchingFields{indexProject: o.GetName()})
}

// ofSecret maps a Secret to the Applications that name it, and one without a name to all of
// its namespace that name any.
func (r *Reconciler) ofSecret(ctx context.Context, o client.Object) []ctrl.Request {
	if o.GetName() != "" {
		return reconcile.Requests(ctx, r.Client, &kibashipv1.ApplicationList{}, nil,
			client.InNamespace(o.GetNamespace()), client.MatchingFields{indexSecret: o.GetName()})
	}
	return reconcile.Requests(ctx, r.Client, &kibashipv1.ApplicationList{}, func(o client.Object) bool {
		return len(rules.Secrets(&o.(*kibashipv1.Application).Spec)) > 0
	}, client.InNamespace(o.GetNamespace()))
}
