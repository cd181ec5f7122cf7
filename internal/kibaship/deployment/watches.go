package deployment

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/application"
	"github.com/bergctf/berg-operator/internal/kit/clockskew"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// SetupWithManager opens the watches. The only timers are how long a result is shown, and how long Tekton may take to respond.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.kind = r.newKind()
	if err := mgr.GetFieldIndexer().IndexField(ctx, &kibashipv1.Deployment{}, indexQueued, func(o client.Object) []string {
		if queuedCondition(o.(*kibashipv1.Deployment)) != nil {
			return []string{indexQueued}
		}
		return nil
	}); err != nil {
		return err
	}
	perPhase.Watch(mgr.GetCache(), r.Clock, mgr.Elected())
	owner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &kibashipv1.Deployment{}, handler.OnlyControllerOwner())
	controllers := ctrl.NewControllerManagedBy(mgr).
		Named("kibaship-deployment").
		For(&kibashipv1.Deployment{}, builder.WithPredicates(predicate.Or(changes, reconcile.Replaced, reconcile.StatusLost))).
		Watches(&kibashipv1.Application{}, handler.EnqueueRequestsFromMapFunc(r.ofApplication), builder.WithPredicates(predicate.Or(applicationChanged, reconcile.Replaced))).
		Watches(&kibashipv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.ofQueue), builder.WithPredicates(queueChanged)).
		Watches(&kibashipv1.ProjectClass{}, handler.EnqueueRequestsFromMapFunc(r.ofQueue)).
		Watches(&kibashipv1.Project{}, handler.EnqueueRequestsFromMapFunc(r.ofQueue), builder.WithPredicates(classChanged)).
		WatchesRawSource(r.Secrets.Source(handler.EnqueueRequestsFromMapFunc(r.ofSecret))).
		WatchesRawSource(clockskew.Source(r.Clock, handler.EnqueueRequestsFromMapFunc(r.showing))).
		WithOptions(r.ControllerOptions())
	kept := []client.Object{&kibashipv1.Deployment{}, &kibashipv1.Application{}, &kibashipv1.Project{}, &kibashipv1.ProjectClass{}}

	// A build takes minutes, and only events of Tekton's objects show that it has ended.
	watch := func(kind client.Object) handler.EventHandler {
		if kind.GetObjectKind().GroupVersionKind() == taskRunKind {
			return handler.EnqueueRequestsFromMapFunc(r.ofTaskRun)
		}
		return owner
	}
	var apis *optional.Follower
	// Kinds that are not served get their watch later, when optional finds them.
	if r.Config.Tekton != config.TektonOff {
		var err error
		apis, err = optional.New(mgr, r.Presence, r.Direct, map[string]client.Object{
			"pipelines.tekton.dev":    empty(pipelineKind),
			"pipelineruns.tekton.dev": empty(pipelineRunKind),
			"taskruns.tekton.dev":     empty(taskRunKind),
		})
		if err != nil {
			return err
		}
		kept = append(kept, optional.Definition())
		controllers = controllers.WatchesRawSource(apis.Enqueues(func() client.ObjectList { return &kibashipv1.DeploymentList{} }))
		for _, kind := range apis.Served() {
			controllers = controllers.Watches(kind, watch(kind), builder.WithPredicates(runChanged))
			if kind.GetObjectKind().GroupVersionKind() == pipelineRunKind {
				controllers = controllers.Watches(kind, handler.EnqueueRequestsFromMapFunc(r.ofQueue), builder.WithPredicates(runOver))
			}
			kept = append(kept, kind)
		}
	}
	if err := reconcile.Open(ctx, mgr.GetCache(), kept...); err != nil {
		return err
	}
	built, err := controllers.Build(r.kind.Reconciler())
	if err != nil || apis == nil {
		return err
	}
	return apis.Setup("kibaship-optional-apis", func(kind client.Object) error {
		if kind.GetObjectKind().GroupVersionKind() == pipelineRunKind {
			if err := built.Watch(source.Kind(mgr.GetCache(), kind, handler.EnqueueRequestsFromMapFunc(r.ofQueue), runOver)); err != nil {
				return err
			}
		}
		return built.Watch(source.Kind(mgr.GetCache(), kind, watch(kind), runChanged))
	})
}

// ofApplication maps an Application to its Deployments.
func (r *Reconciler) ofApplication(ctx context.Context, o client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &kibashipv1.DeploymentList{}, nil,
		client.InNamespace(o.GetNamespace()), client.MatchingFields{application.IndexApplication: o.GetName()})
}

// ofSecret maps a Secret to the Deployments of its namespace that are not Ready: they may wait for it, or their run may
// have lost it.
func (r *Reconciler) ofSecret(ctx context.Context, o client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &kibashipv1.DeploymentList{}, func(o client.Object) bool {
		d := o.(*kibashipv1.Deployment)
		return d.Status.Phase == kibashipv1.DeploymentWaiting && !isReady(d) || d.Status.Phase == kibashipv1.DeploymentRunning
	}, client.InNamespace(o.GetNamespace()))
}

func isReady(d *kibashipv1.Deployment) bool {
	return meta.IsStatusConditionTrue(d.Status.Conditions, kibashipv1.ConditionReady)
}

// ofTaskRun maps a TaskRun to its Deployment. Its owner is the PipelineRun, whose labels it has. A label may hold a
// shortened name, so all Deployments with that label are enqueued.
func (r *Reconciler) ofTaskRun(ctx context.Context, o client.Object) []ctrl.Request {
	name := o.GetLabels()[kibashipv1.LabelDeployment]
	if name == "" {
		return nil
	}
	return reconcile.Requests(ctx, r.Client, &kibashipv1.DeploymentList{}, func(d client.Object) bool {
		return deploymentLabel(d.GetName()) == name
	}, client.InNamespace(o.GetNamespace()))
}

// showing maps a jump of the clock to the Deployments whose phase is a result that is shown for a limited time.
func (r *Reconciler) showing(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &kibashipv1.DeploymentList{}, func(o client.Object) bool {
		phase := o.(*kibashipv1.Deployment).Status.Phase
		return phase == kibashipv1.DeploymentSucceeded || phase == kibashipv1.DeploymentFailed
	})
}

// changes accepts writes of clients outside the status.
var changes = predicate.Or(predicate.GenerationChangedPredicate{}, // also where it is being deleted
	predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// applicationChanged accepts changes of the fields that a Deployment depends on.
var applicationChanged = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return true },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*kibashipv1.Application), e.ObjectNew.(*kibashipv1.Application)
		return before.Labels[kibashipv1.LabelProjectUUID] != after.Labels[kibashipv1.LabelProjectUUID] ||
			before.Labels[kibashipv1.LabelWorkspaceUUID] != after.Labels[kibashipv1.LabelWorkspaceUUID] || ready(before) != ready(after) || before.Status.Message != after.Status.Message || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
	},
})

// runChanged accepts writes of clients, and status updates of Tekton. Only the fields that readRun uses are compared, so other
// writes of Tekton enqueue nothing.
var runChanged = predicate.Or(changes, predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*unstructured.Unstructured)
		after, also := e.ObjectNew.(*unstructured.Unstructured)
		return !ok || !also || !equality.Semantic.DeepEqual(parseStatus(before), parseStatus(after))
	},
})

// runOver accepts the end of a run.
var runOver = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*unstructured.Unstructured)
		after, also := e.ObjectNew.(*unstructured.Unstructured)
		return ok && also && findSucceeded(parseStatus(before)).Status == metav1.ConditionUnknown && findSucceeded(parseStatus(after)).Status != metav1.ConditionUnknown ||
			e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil
	},
}

// queueChanged accepts a Deployment that begins or ceases to wait for a slot, or says another position than before, and one that builds no
// longer. A creation is none of these: the Deployment is reconciled for itself.
var queueChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*kibashipv1.Deployment), e.ObjectNew.(*kibashipv1.Deployment)
		return !equality.Semantic.DeepEqual(queuedCondition(before), queuedCondition(after)) || isBuilding(before) && !isBuilding(after) ||
			before.DeletionTimestamp == nil && after.DeletionTimestamp != nil
	},
	DeleteFunc: func(e event.DeleteEvent) bool {
		d := e.Object.(*kibashipv1.Deployment)
		return queuedCondition(d) != nil || isBuilding(d)
	},
}

// classChanged accepts Projects that get another class.
var classChanged = reconcile.Updates(func(before, after client.Object) bool {
	return before.(*kibashipv1.Project).Spec.Class != after.(*kibashipv1.Project).Spec.Class
})

// TrimRun drops the parts of Tekton's objects that the operator does not read.
func TrimRun(u *unstructured.Unstructured) {
	switch u.GroupVersionKind() {
	case taskRunKind:
		delete(u.Object, "spec")
	case pipelineRunKind:
	default:
		return
	}
	status, ok := u.Object["status"].(map[string]any)
	if !ok {
		return
	}
	for key := range status {
		switch key {
		case "conditions", "startTime", "completionTime", "childReferences", "podName", "steps":
		default:
			delete(status, key)
		}
	}
}
