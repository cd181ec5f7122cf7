package project

import (
	"context"
	"errors"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/precedence"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler creates, repairs and deletes Projects.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Writer writes what belongs to a Project.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.KibaShip
	// Identity returns who the operator is to the API server.
	Identity func(context.Context) (rbacv1.Subject, error)
	// Starts are the first passes of new Projects under way: events wait for them.
	Starts *precedence.Precedence
	// Workers is how many Projects are worked on at the same time.
	Workers int

	backoff    *outcome.Backoff
	finalizers finalizer.Remover
}

// What is written in the namespace of a Project, but bindings, the operator may write there
// alone: by the ClusterRole that it binds to itself. So the cluster-wide rights are to bind
// two ClusterRoles by name, and to look. Whoever renames the first one
// (PROJECT_ADMIN_CLUSTER_ROLE) gives the operator the right to bind that one.
//
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=projects,verbs=list;watch;patch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=projects/status,verbs=patch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=projects/finalizers,verbs=update
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=applications;deployments,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts;resourcequotas;limitranges,verbs=list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=kibaship-project-admin;kibaship-tekton-integration,verbs=bind
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reconcile brings one Project a step further, or leaves it alone when there is nothing to do.
// Events alone wake it.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (never time.Duration, err error) {
	p := &kibashipv1.Project{}
	if err := outcome.WrapNotFound(r.Client.Get(ctx, req.NamespacedName, p)); err != nil {
		if errors.Is(err, outcome.ErrGone) {
			r.finalizers.Forget(req.NamespacedName)
		}
		return never, err
	}
	r.backoff.ResetIfReplaced(req, p.UID)
	now := r.Clock.Now()
	if p.DeletionTimestamp != nil {
		return never, r.finalize(ctx, p, now)
	}
	if p.Status.ObservedGeneration == 0 {
		defer r.Starts.Take()()
	}
	return never, r.keep(ctx, p, now)
}

// keep makes a live Project what it should be.
func (r *Reconciler) keep(ctx context.Context, p *kibashipv1.Project, now time.Time) error {
	held := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, p, kibashipv1.ProjectFinalizer))
	if held != nil && outcome.CauseOf(held) != outcome.Rejected {
		return held
	}
	observed, err := r.observe(ctx, p)
	if err != nil {
		return err
	}
	before := p.DeepCopy()
	out := r.build(ctx, p, observed, finalizerProblem(held))
	if out.raced() {
		return outcome.ErrConflict
	}
	computeStatus(p, out, now)
	if err := r.patchStatus(ctx, before, p, now); err != nil {
		return reconcile.Join(out.err(), err)
	}
	r.report(before, p, out, now)
	return out.err()
}

// build applies the plan: the namespace, the rights in it, the limits, and what is in the
// namespace of Tekton. While the finalizer is refused nothing is made: a deletion would be
// missed.
func (r *Reconciler) build(ctx context.Context, p *kibashipv1.Project, o Observed, held *outcome.Problem) Outcome {
	out := Outcome{Observed: o, Mode: r.Config.Tekton, problems: map[string]*outcome.Problem{}}
	if out.add(check(p, o)); !out.stopped() {
		out.add(held)
	}
	if !out.stopped() {
		out.add(checkNamespace(p, o))
	}
	in := r.inputs(p, o)
	if !out.stopped() {
		_, err := apply.Apply(ctx, r.recording(), namespaceOwner(p), namespace(in))
		out.add(problemOf(kibashipv1.ConditionNamespaceReady, kibashipv1.ReasonNamespaceConflict, err))
		out.NamespaceCreated = err == nil && o.Namespace == nil
	}
	if !out.stopped() {
		out.add(checkAdmin(o, r.Config.ProjectAdmin))
	}
	if !out.stopped() {
		for _, failure := range apply.Steps(ctx, r.Writer, ownerOf(p), naming.Namespace(p.Name), plan(in, granted)) {
			out.add(problemOf(failure.Condition, kibashipv1.ReasonOwnershipConflict, failure.Err))
		}
	}
	if !out.stopped() {
		if out.add(checkTekton(o, r.Config.Tekton)); in.Tekton {
			out.add(problemOf(kibashipv1.ConditionTektonIntegrated, kibashipv1.ReasonOwnershipConflict, r.integrate(ctx, p, in)))
		}
	}
	return out
}

func (r *Reconciler) inputs(p *kibashipv1.Project, o Observed) Inputs {
	return Inputs{
		UID: p.UID, Name: p.Name, Spec: p.Spec,
		UUID: p.Labels[kibashipv1.LabelUUID], WorkspaceUUID: p.Labels[kibashipv1.LabelWorkspaceUUID],
		Admin: r.Config.ProjectAdmin, Operator: o.Operator,
		Tekton: o.Tekton && r.Config.Tekton != config.TektonOff,
	}
}

// recording notes on the namespace what was asked for, so that it can be taken off again.
func (r *Reconciler) recording() apply.Writer {
	w := r.Writer
	w.Record = kibashipv1.AnnotationApplied
	return w
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, p *kibashipv1.Project, now time.Time) error {
	return reconcile.Status[*kibashipv1.Project]{
		Client: r.Client,
		Of:     func(p *kibashipv1.Project) any { return &p.Status },
		Bound:  bound,
		Touch: func(p *kibashipv1.Project) {
			if p.Status.Phase == kibashipv1.ProjectReady {
				p.Status.LastReconcileTime = &metav1.Time{Time: now}
			}
		},
		Rejected: func(p *kibashipv1.Project, err error) {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, p, kibashipv1.ReasonRefused, actionObserve,
				"The API server refuses the status of this Project: "+err.Error())
		},
	}.Patch(ctx, before, p)
}
