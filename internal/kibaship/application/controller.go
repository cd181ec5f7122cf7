package application

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The operator reads Secrets, and creates Deployments and the Secrets of webhooks, by the rights that it has in the namespaces of Projects.
//
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=projects,verbs=list;watch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=applications,verbs=list;watch;patch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=applications/status,verbs=patch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=deployments,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=system
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=kibaship-pushes-key,verbs=get,namespace=system
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// newKind returns the steps that are particular to Applications; kit/reconcile does the rest.
func (r *Reconciler) newKind() *reconcile.Kind[*kibashipv1.Application, Observed] {
	return &reconcile.Kind[*kibashipv1.Application, Observed]{
		Client: r.Client, Live: r.Writer.Live, Events: r.Events, Clock: r.Clock, Metrics: reconcileMetrics,
		Finalizer: kibashipv1.ApplicationFinalizer, FinalizerInApply: true,
		Observe:  r.observe,
		Check:    func(a *kibashipv1.Application, o *Observed) outcome.Problems { return check(a, *o) },
		Apply:    r.apply,
		Status:   computeStatus,
		Report:   r.report,
		Finalize: r.finalize,
		RequeueAfter: func(_ *kibashipv1.Application, o Observed, _ outcome.Problems, _ time.Time) time.Duration {
			if o.AutoBuild != nil && o.AutoBuild.Refused {
				return refusedInterval
			}
			return 0
		},
		Forget: func(ctx context.Context, key types.NamespacedName) error {
			r.Poller.Forget(key)
			return r.closeUnused(ctx, key.Namespace)
		},
		Bound: bound,
	}
}

// apply writes finalizer and labels, closes the watch of Secrets where no Application names one any more, and starts the builds
// of pushes. An Application with any problem starts no builds, and is not asked about until it is Ready again.
func (r *Reconciler) apply(ctx context.Context, a *kibashipv1.Application, o *Observed, problems *outcome.Problems) error {
	err := r.putMetadata(ctx, a, *o)
	if err != nil && outcome.Classify(err) != outcome.Rejected {
		return err
	}
	if err != nil {
		problems.Replace(outcome.NewProblem(kibashipv1.ConditionSpecAccepted, fmt.Errorf("put finalizer and labels on this Application: %w", err)))
	}
	if len(rules.Secrets(&a.Spec)) == 0 {
		if err := r.closeUnused(ctx, a.Namespace); err != nil {
			return err
		}
	}
	if !enabled(a) || problems.First() != nil || waiting(a, *o) {
		r.Poller.Forget(client.ObjectKeyFromObject(a))
		return nil
	}
	o.AutoBuild, err = r.autoBuild(ctx, a)
	return err
}

// putMetadata puts on the finalizer and the labels of the Project, in one write.
func (r *Reconciler) putMetadata(ctx context.Context, a *kibashipv1.Application, o Observed) error {
	wanted := ProjectLabels(a.Labels, o.Project)
	if controllerutil.ContainsFinalizer(a, kibashipv1.ApplicationFinalizer) && maps.Equal(wanted, a.Labels) {
		return nil
	}
	if err := outcome.WrapNotFound(finalizer.Complete(ctx, r.Client, r.Writer.Live, a)); err != nil {
		return err
	}
	changed := a.DeepCopy()
	controllerutil.AddFinalizer(changed, kibashipv1.ApplicationFinalizer)
	changed.Labels = wanted
	if err := outcome.WrapNotFound(r.Client.Patch(ctx, changed, client.MergeFromWithOptions(a, client.MergeFromWithOptimisticLock{}))); err != nil {
		return err
	}
	*a = *changed
	return nil
}

// ProjectLabels returns the labels of an object with the UUIDs of its Project added. While the Project does not exist,
// existing labels stay unchanged. Other labels are left as they are.
func ProjectLabels(existing map[string]string, project *kibashipv1.Project) map[string]string {
	wanted := maps.Clone(existing)
	if project == nil || !rules.UUID(project.Labels[kibashipv1.LabelUUID]) {
		return wanted
	}
	if wanted == nil {
		wanted = map[string]string{}
	}
	wanted[kibashipv1.LabelProjectUUID] = project.Labels[kibashipv1.LabelUUID]
	delete(wanted, kibashipv1.LabelWorkspaceUUID)
	if workspace := project.Labels[kibashipv1.LabelWorkspaceUUID]; workspace != "" {
		wanted[kibashipv1.LabelWorkspaceUUID] = workspace
	}
	return wanted
}

// closeUnused closes the watch of Secrets in a namespace where no Application names one.
func (r *Reconciler) closeUnused(ctx context.Context, namespace string) error {
	var rest kibashipv1.ApplicationList
	if err := r.Client.List(ctx, &rest, client.InNamespace(namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return err
	}
	for i := range rest.Items {
		if len(rules.Secrets(&rest.Items[i].Spec)) > 0 {
			return nil
		}
	}
	r.Secrets.Close(secretsUser, namespace)
	return nil
}
