package deployment

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/application"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	kitnaming "github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The rights to write Pipelines and PipelineRuns, and to read Secrets, ConfigMaps, and the pods and logs of builds, are those of the
// ClusterRole that is bound in the namespace of each Project: none of them is held elsewhere.
//
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=deployments,verbs=list;watch;patch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=deployments/status,verbs=patch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=deployments/finalizers,verbs=update
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=applications,verbs=get;list;watch
// +kubebuilder:rbac:groups=tekton.dev,resources=pipelines;pipelineruns;taskruns,verbs=list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get,namespace=system

// newKind returns the steps that are particular to Deployments; kit/reconcile does the rest. Every object that belongs
// to a Deployment has an owner reference to it, so the garbage collector deletes it. The finalizer is for the usage of a build that runs.
func (r *Reconciler) newKind() *reconcile.Kind[*kibashipv1.Deployment, Outcome] {
	return &reconcile.Kind[*kibashipv1.Deployment, Outcome]{
		Client: r.Client, Live: r.Writer.Live, Events: r.Events, Clock: r.Clock, Metrics: reconcileMetrics,
		Finalizer: kibashipv1.DeploymentFinalizer, FinalizerInApply: true,
		Observe: func(ctx context.Context, d *kibashipv1.Deployment) (out Outcome, err error) {
			out.Observed, err = r.observe(ctx, d)
			return out, err
		},
		Apply: r.apply,
		Status: func(_ *kibashipv1.Deployment, out Outcome, _ outcome.Problems, now time.Time) reconcile.Ready {
			return computeStatus(out, r.Config.Builds, now)
		},
		Report: r.report,
		RequeueAfter: func(_ *kibashipv1.Deployment, out Outcome, _ outcome.Problems, now time.Time) time.Duration {
			return requeueAfter(out, r.Config.Builds, now)
		},
		Finalize: r.finalize,
		Forget:   func(ctx context.Context, key types.NamespacedName) error { return r.closeUnused(ctx, key.Namespace) },
	}
}

// apply writes the labels of Application and Project, and starts or resolves the build for the type of the Application.
func (r *Reconciler) apply(ctx context.Context, d *kibashipv1.Deployment, out *Outcome, problems *outcome.Problems) error {
	// It comes before the first write of the status: a build whose end the status has is not found by endedBuilds again.
	if err := r.countBuilds(ctx, d.Namespace, endedBuilds(d, out.Runs, out.Tekton, r.Clock.Now())); err != nil {
		return err
	}
	// A refused label is kept as the problem of the Deployment. Any other error ends the reconciliation. Nothing is built in both
	// cases.
	err := r.label(ctx, out.Observed)
	if err != nil && outcome.Classify(err) != outcome.Rejected {
		return err
	}
	if out.Problem = checkLabel(err); out.Problem == nil {
		out.Problem = r.deploy(ctx, out)
	}
	problems.Add(out.Problem)
	return nil
}

// deploy builds or resolves the image, depending on the type of the Application.
func (r *Reconciler) deploy(ctx context.Context, out *Outcome) *outcome.Problem {
	if problem := check(out.Observed); problem != nil {
		return problem
	}
	o := out.Observed
	if o.Application.Spec.Type != kibashipv1.TypeGitRepository {
		// It may have been one before: its image is no longer wanted.
		if err := r.endOthers(ctx, o, ""); err != nil {
			return r.writeProblem(ctx, kibashipv1.ConditionSucceeded, err)
		}
	}
	var problem *outcome.Problem
	switch o.Application.Spec.Type {
	case kibashipv1.TypeGitRepository:
		pushImage := r.pushImage(ctx)
		if problem := checkPipeline(o, r.Config, pushImage); problem != nil {
			return problem
		}
		in := newInputs(o, r.Config.Builds, pushImage)
		out.In = &in
		var fresh bool
		if fresh, problem = r.build(ctx, &out.Observed, in); fresh {
			out.Started = in.runName()
		}
	case kibashipv1.TypeDockerImage:
		out.Image, problem = r.resolve(ctx, o)
	case kibashipv1.TypeMySQL, kibashipv1.TypeMySQLCluster, kibashipv1.TypePostgres, kibashipv1.TypePostgresCluster:
	}
	return problem
}

// label writes on a Deployment the name of its Application and the UUIDs of its Project, so that it can be selected by them, and the
// finalizer if it builds. The label uuid may be the platform's own: it is written only where there is none. The patch has the
// lock, because the list of finalizers is replaced as a whole.
func (r *Reconciler) label(ctx context.Context, o Observed) error {
	d := o.Deployment
	wanted := application.ProjectLabels(d.Labels, o.Project)
	if wanted == nil {
		wanted = map[string]string{}
	}
	wanted[kibashipv1.LabelApplication] = kitnaming.LabelValue(d.Spec.ApplicationRef.Name)
	if id := wanted[kibashipv1.LabelProjectUUID]; o.Project != nil && id != "" && wanted[kibashipv1.LabelUUID] == "" {
		wanted[kibashipv1.LabelUUID] = id
	}
	if err := outcome.WrapNotFound(finalizer.Complete(ctx, r.Client, r.Writer.Live, d)); err != nil {
		return err
	}
	labelled := d.DeepCopy()
	labelled.Labels = wanted
	added := o.Application != nil && o.Application.Spec.Type == kibashipv1.TypeGitRepository && controllerutil.AddFinalizer(labelled, kibashipv1.DeploymentFinalizer)
	if !added && maps.Equal(wanted, d.Labels) {
		return nil
	}
	if err := outcome.WrapNotFound(r.Client.Patch(ctx, labelled, client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{}))); err != nil {
		return err
	}
	*d = *labelled
	return nil
}

// closeUnused closes the watch of Secrets in a namespace where no Deployment is left.
func (r *Reconciler) closeUnused(ctx context.Context, namespace string) error {
	var rest kibashipv1.DeploymentList
	if err := r.Client.List(ctx, &rest, client.InNamespace(namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return err
	}
	if len(rest.Items) == 0 {
		r.Secrets.Close(secretsUser, namespace)
	}
	return nil
}
