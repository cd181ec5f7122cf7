package deployment

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kibaship/secrets"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	kitnaming "github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler builds what Deployments ask for.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Writer writes what belongs to a Deployment.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.KibaShip
	// Presence knows whether Tekton is installed, and Direct reads past it.
	Presence *optional.Presence
	Direct   client.Reader
	// Reach says to which addresses the operator goes to ask for an image.
	Reach registry.Reach
	// Pod is the operator's own, whose image pushes unless the settings name another one.
	Pod client.ObjectKey
	// Secrets tells when a Secret comes or goes.
	Secrets *secrets.Watches
	// Workers is how many Deployments are worked on at the same time.
	Workers int

	backoff    *outcome.Backoff
	finalizers finalizer.Remover
	own        struct {
		sync.Mutex
		image string
	}
}

// The rights to write Pipelines and PipelineRuns, and to read Secrets and ConfigMaps, are those
// of the ClusterRole that is bound in the namespace of each Project: none of them is held
// elsewhere.
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

// reconcile brings one Deployment a step further, or leaves it alone when there is nothing to
// do. It returns after how long time alone will change something, zero for never.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (again time.Duration, err error) {
	d := &kibashipv1.Deployment{}
	if err := outcome.WrapNotFound(r.Client.Get(ctx, req.NamespacedName, d)); err != nil {
		if errors.Is(err, outcome.ErrGone) {
			r.finalizers.Forget(req.NamespacedName)
			return 0, errors.Join(r.closeUnused(ctx, req.Namespace), err)
		}
		return 0, err
	}
	r.backoff.ResetIfReplaced(req, d.UID)
	if d.DeletionTimestamp != nil {
		// What belongs to it is owned by it, and goes with it.
		return 0, r.finalizers.Remove(ctx, r.Client, d, kibashipv1.DeploymentFinalizer)
	}
	now := r.Clock.Now()
	unlabelled := r.label(ctx, d)
	if unlabelled != nil && outcome.CauseOf(unlabelled) != outcome.Rejected {
		return 0, unlabelled
	}
	o, err := r.observe(ctx, d)
	if err != nil {
		return 0, err
	}
	before := d.DeepCopy()
	out, started := Outcome{Observed: o, Problem: checkLabel(unlabelled)}, ""
	if out.Problem == nil {
		out, started = r.take(ctx, o)
	}
	if out.Problem != nil && out.Problem.Class == outcome.Stale {
		return 0, outcome.ErrConflict
	}
	computeStatus(out, r.Config.Builds.ResultTime, now)
	err = r.patchStatus(ctx, before, d)
	if err == nil {
		r.report(before, out, started)
	}
	if p := out.Problem; p != nil && p.Err != nil {
		err = reconcile.Join(p.Err, err)
	}
	return requeueAfter(out, r.Config.Builds.ResultTime, now), err
}

// take does what the type of the Application asks for.
func (r *Reconciler) take(ctx context.Context, o Observed) (out Outcome, started string) {
	out.Observed = o
	if out.Problem = check(o); out.Problem != nil {
		return out, ""
	}
	if o.Application.Spec.Type != kibashipv1.TypeGitRepository {
		// It was one before, perhaps: nobody asks for that image any more.
		if err := r.endOthers(ctx, o, ""); err != nil {
			out.Problem = r.problemOf(ctx, kibashipv1.ConditionSucceeded, err)
			return out, ""
		}
	}
	switch o.Application.Spec.Type {
	case kibashipv1.TypeGitRepository:
		pushImage := r.ownImage(ctx)
		if out.Problem = checkPipeline(o, r.Config, pushImage); out.Problem != nil {
			return out, ""
		}
		in := inputsOf(o.Deployment, o.Application, r.Config.Builds, pushImage)
		out.In = &in
		var fresh bool
		if fresh, out.Problem = r.build(ctx, &out.Observed, in); fresh {
			started = in.runName()
		}
	case kibashipv1.TypeDockerImage:
		out.Image, out.Problem = r.resolve(ctx, o)
	default: // a database
	}
	return out, started
}

// label says on a Deployment to which Application it belongs, for those who look for it.
func (r *Reconciler) label(ctx context.Context, d *kibashipv1.Deployment) error {
	want := kitnaming.LabelValue(d.Spec.ApplicationRef.Name)
	if d.Labels[kibashipv1.LabelApplication] == want {
		return nil
	}
	labelled := d.DeepCopy()
	if labelled.Labels == nil {
		labelled.Labels = map[string]string{}
	}
	labelled.Labels[kibashipv1.LabelApplication] = want
	if err := outcome.WrapNotFound(r.Client.Patch(ctx, labelled, client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{}))); err != nil {
		return err
	}
	*d = *labelled
	return nil
}

// closeUnused leaves the watch of Secrets in a namespace where there is no Deployment any more.
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

// secretsUser is who looks at Secrets here.
const secretsUser = "deployment"

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, d *kibashipv1.Deployment) error {
	return reconcile.Status[*kibashipv1.Deployment]{
		Client: r.Client,
		Of:     func(d *kibashipv1.Deployment) any { return &d.Status },
		Rejected: func(d *kibashipv1.Deployment, err error) {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, d, kibashipv1.ReasonRefused, actionObserve, "The API server refuses the status of this Deployment: "+err.Error())
		},
	}.Patch(ctx, before, d)
}
