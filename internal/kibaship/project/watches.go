package project

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// IndexUUID finds the Projects of a uuid.
const IndexUUID = "uuid"

// usageDelay collects changes of a Project's usage, since the counts of a status may be some seconds old. With one
// second, 500 Applications created together in 200 Projects cost half as many writes again.
const usageDelay = 5 * time.Second

// SetupWithManager opens the watches. The only timer counts the usage of a day.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.kind = r.newKind()
	if err := mgr.GetFieldIndexer().IndexField(ctx, &kibashipv1.Project{}, IndexUUID, func(o client.Object) []string {
		if id := o.GetLabels()[kibashipv1.LabelUUID]; id != "" {
			return []string{id}
		}
		return nil
	}); err != nil {
		return err
	}
	perPhase.Watch(mgr.GetCache(), r.Clock, mgr.Elected())
	if err := reconcile.Open(ctx, mgr.GetCache(), &corev1.Namespace{}, &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{},
		&rbacv1.ClusterRole{}, &corev1.ResourceQuota{}, &corev1.LimitRange{}, &networkingv1.NetworkPolicy{},
		&kibashipv1.Application{}, &kibashipv1.Deployment{}, &kibashipv1.ProjectClass{}, optional.Definition()); err != nil {
		return err
	}
	owner, every := handler.EnqueueRequestsFromMapFunc(r.ofPart), handler.EnqueueRequestsFromMapFunc(r.everyProject)
	named := func(name string) predicate.Predicate {
		return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == name })
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("kibaship-project").
		For(&kibashipv1.Project{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, reconcile.Replaced, reconcile.StatusLost, handedOver, finalizer.TakenOff(kibashipv1.ProjectFinalizer)))).
		// A uuid becomes free when its Project goes or changes.
		Watches(&kibashipv1.Project{}, handler.EnqueueRequestsFromMapFunc(r.ofSameUUID), builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, reconcile.Deleted))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(ofObject)).
		Watches(&corev1.Namespace{}, every, builder.WithPredicates(named(naming.TektonNamespace), createdOrDeleted)).
		Watches(optional.Definition(), every, builder.WithPredicates(named(tasksDefinition), createdOrDeleted)).
		Watches(&rbacv1.ClusterRole{}, every, builder.WithPredicates(predicate.Or(createdOrDeleted, predicate.ResourceVersionChangedPredicate{}))).
		Watches(&corev1.ServiceAccount{}, owner).
		Watches(&rbacv1.Role{}, owner).
		Watches(&rbacv1.RoleBinding{}, owner).
		Watches(&corev1.LimitRange{}, owner).
		Watches(&networkingv1.NetworkPolicy{}, owner).
		Watches(&corev1.ResourceQuota{}, owner, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&corev1.ResourceQuota{}, gathered{}, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&kibashipv1.ProjectClass{}, handler.EnqueueRequestsFromMapFunc(r.ofClass)).
		Watches(&kibashipv1.Application{}, gathered{}, builder.WithPredicates(predicate.Or(createdOrDeleted, predicate.GenerationChangedPredicate{}))).
		Watches(&kibashipv1.Deployment{}, gathered{}, builder.WithPredicates(createdOrDeleted)).
		WithOptions(r.ControllerOptions())
	return admissionpolicy.Watch(b, every, r.Policies.all()...).Complete(r.kind.Reconciler())
}

// handedOver accepts a Project in whose status an administrator has written the UID of a namespace, to give it to the Project.
var handedOver = reconcile.Updates(func(before, after client.Object) bool {
	return before.(*kibashipv1.Project).Status.NamespaceUID != after.(*kibashipv1.Project).Status.NamespaceUID
})

// createdOrDeleted accepts creations and deletions, and the start of a deletion.
var createdOrDeleted = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil) || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
}}

// ofObject maps a namespace, or an object in one, to the Project of its name, and an object in the namespace of Tekton to
// the Project that it names, which need not exist. A label or an annotation that names a wrong Project costs a reconciliation and
// no more.
func ofObject(_ context.Context, o client.Object) []ctrl.Request {
	name, ok := naming.ParseNamespace(cmp.Or(o.GetNamespace(), o.GetName()))
	if !ok && o.GetNamespace() == naming.TektonNamespace {
		name = cmp.Or(o.GetAnnotations()[kibashipv1.AnnotationProject], o.GetLabels()[kibashipv1.LabelProjectName])
		ok = name != ""
	}
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

// ofPart is ofObject, and maps the objects that all Projects share to all of them.
func (r *Reconciler) ofPart(ctx context.Context, o client.Object) []ctrl.Request {
	if o.GetNamespace() == naming.TektonNamespace && (o.GetName() == naming.TasksReader || o.GetName() == tektonOperatorBinding) {
		return r.everyProject(ctx, o)
	}
	return ofObject(ctx, o)
}

func (r *Reconciler) everyProject(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &kibashipv1.ProjectList{}, nil)
}

// ofSameUUID maps a Project to the others of its uuid.
func (r *Reconciler) ofSameUUID(ctx context.Context, o client.Object) []ctrl.Request {
	id := o.GetLabels()[kibashipv1.LabelUUID]
	if id == "" {
		return nil
	}
	return reconcile.Requests(ctx, r.Client, &kibashipv1.ProjectList{}, nil, client.MatchingFields{IndexUUID: id})
}

// ofClass maps a ProjectClass to the Projects that name it.
func (r *Reconciler) ofClass(ctx context.Context, o client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &kibashipv1.ProjectList{}, func(p client.Object) bool {
		return p.(*kibashipv1.Project).Spec.Class == o.GetName()
	})
}

// gathered enqueues the Project of an object after usageDelay, so that many changes are counted together. The queue holds a key
// once, so many changes within the delay give one reconciliation.
type gathered struct{}

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

func (gathered) enqueue(ctx context.Context, o client.Object, q queue) {
	for _, request := range ofObject(ctx, o) {
		q.AddAfter(request, usageDelay)
	}
}

// Create implements handler.EventHandler.
func (g gathered) Create(ctx context.Context, e event.CreateEvent, q queue) {
	if !e.IsInInitialList { // then the Project itself is new, too
		g.enqueue(ctx, e.Object, q)
	}
}

// Update implements handler.EventHandler.
func (g gathered) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	g.enqueue(ctx, e.ObjectNew, q)
}

// Delete implements handler.EventHandler.
func (g gathered) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	g.enqueue(ctx, e.Object, q)
}

// Generic implements handler.EventHandler.
func (g gathered) Generic(ctx context.Context, e event.GenericEvent, q queue) {
	g.enqueue(ctx, e.Object, q)
}
