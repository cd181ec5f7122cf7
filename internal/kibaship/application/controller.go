package application

import (
	"context"
	"errors"
	"maps"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kibaship/secrets"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/precedence"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler checks Applications.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Secrets knows which Secrets there are.
	Secrets *secrets.Watches
	// Starts are the first passes of new Applications under way: events wait for them.
	Starts *precedence.Precedence
	// Workers is how many Applications are worked on at the same time.
	Workers int

	backoff    *outcome.Backoff
	finalizers finalizer.Remover
}

// Secrets are looked at by the rights that the operator has in the namespaces of Projects.
//
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=projects,verbs=list;watch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=applications,verbs=list;watch;patch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=applications/status,verbs=patch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=deployments,verbs=list;watch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reconcile checks one Application, or leaves it alone when there is nothing to do. Events
// alone wake it.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (never time.Duration, err error) {
	a := &kibashipv1.Application{}
	if err := outcome.WrapNotFound(r.Client.Get(ctx, req.NamespacedName, a)); err != nil {
		if errors.Is(err, outcome.ErrGone) {
			r.finalizers.Forget(req.NamespacedName)
			return never, errors.Join(r.closeUnused(ctx, req.Namespace), err)
		}
		return never, err
	}
	r.backoff.ResetIfReplaced(req, a.UID)
	now := r.Clock.Now()
	if a.DeletionTimestamp != nil {
		return never, r.finalize(ctx, a, now)
	}
	if a.Status.ObservedGeneration == 0 {
		defer r.Starts.Take()()
	}
	return never, r.keep(ctx, a, now)
}

// keep tells of a live Application whether it can be deployed.
func (r *Reconciler) keep(ctx context.Context, a *kibashipv1.Application, now time.Time) error {
	observed, err := r.observe(ctx, a)
	if err != nil {
		return err
	}
	problems := check(a, observed)
	if err := r.claim(ctx, a, observed); err != nil {
		if outcome.CauseOf(err) != outcome.Rejected {
			return err
		}
		problems[kibashipv1.ConditionSpecAccepted] = &outcome.Problem{
			Condition: kibashipv1.ConditionSpecAccepted, Reason: kibashipv1.ReasonRefused, Class: outcome.External, Err: err,
			Message: "The API server refuses finalizer and labels of this Application: " + err.Error(),
		}
	}
	before := a.DeepCopy()
	computeStatus(a, observed, problems, now)
	failed := errorOf(problems)
	if err := r.patchStatus(ctx, before, a); err != nil {
		return reconcile.Join(failed, err)
	}
	r.report(before, a, observed, problems)
	if len(rules.Secrets(&a.Spec)) == 0 {
		return errors.Join(failed, r.closeUnused(ctx, a.Namespace))
	}
	return failed
}

func errorOf(problems map[string]*outcome.Problem) error {
	var errs []error
	for _, p := range problems {
		errs = append(errs, p.Err)
	}
	return errors.Join(errs...)
}

// claim puts on the finalizer and the labels of the Project, in one write.
func (r *Reconciler) claim(ctx context.Context, a *kibashipv1.Application, o Observed) error {
	wanted := labels(a.Labels, o.Project)
	if controllerutil.ContainsFinalizer(a, kibashipv1.ApplicationFinalizer) && maps.Equal(wanted, a.Labels) {
		return nil
	}
	claimed := a.DeepCopy()
	controllerutil.AddFinalizer(claimed, kibashipv1.ApplicationFinalizer)
	claimed.Labels = wanted
	if err := outcome.WrapNotFound(r.Client.Patch(ctx, claimed, client.MergeFromWithOptions(a, client.MergeFromWithOptimisticLock{}))); err != nil {
		return err
	}
	*a = *claimed
	return nil
}

// labels are those that an Application has with those of its Project. While the Project is
// not there, they stay what they are.
func labels(has map[string]string, project *kibashipv1.Project) map[string]string {
	wanted := maps.Clone(has)
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

// closeUnused leaves the watch of Secrets in a namespace where no Application names one.
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

// secretsUser is who looks at Secrets here.
const secretsUser = "application"

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, a *kibashipv1.Application) error {
	return reconcile.Status[*kibashipv1.Application]{
		Client: r.Client,
		Of:     func(a *kibashipv1.Application) any { return &a.Status },
		Bound:  bound,
		Rejected: func(a *kibashipv1.Application, err error) {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, a, kibashipv1.ReasonRefused, actionObserve,
				"The API server refuses the status of this Application: "+err.Error())
		},
	}.Patch(ctx, before, a)
}
