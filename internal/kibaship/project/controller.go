package project

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/usage"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// What is written in the namespace of a Project, but bindings, the operator may write there
// alone: by the ClusterRole that it binds to itself. So the cluster-wide rights are to bind
// two ClusterRoles by name, and to read. An administrator who renames the first one
// (PROJECT_ADMIN_CLUSTER_ROLE) gives the operator the right to bind that one.
//
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=projects,verbs=list;watch;patch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=projects/status,verbs=patch
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=projects/finalizers,verbs=update
// +kubebuilder:rbac:groups=platform.operator.kibaship.com,resources=applications;deployments;projectclasses,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts;resourcequotas;limitranges,verbs=list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=kibaship-project-admin;kibaship-tekton-integration,verbs=bind
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=berg-operator-fence;berg-operator-kibaship-tenants;berg-operator-kibaship-confined-pods,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// newKind returns the steps that are particular to Projects; kit/reconcile does the rest.
func (r *Reconciler) newKind() *reconcile.Kind[*kibashipv1.Project, State] {
	return &reconcile.Kind[*kibashipv1.Project, State]{
		Client: r.Client, Live: r.Writer.Live, Events: r.Events, Clock: r.Clock, Metrics: reconcileMetrics,
		Finalizer: kibashipv1.ProjectFinalizer, FinalizerCondition: kibashipv1.ConditionNamespaceReady,
		Observe:  r.observe,
		Check:    func(p *kibashipv1.Project, s *State) outcome.Problems { return check(p, s.Observed) },
		Apply:    r.apply,
		Status:   computeStatus,
		Report:   r.report,
		Finalize: r.finalize,
		RequeueAfter: func(p *kibashipv1.Project, _ State, _ outcome.Problems, now time.Time) time.Duration {
			return usage.RequeueAfter(&p.Status.Usage, p.Name, now)
		},
		Bound: bound,
		Touch: func(p *kibashipv1.Project, now time.Time) {
			if p.Status.Phase == kibashipv1.ProjectReady {
				p.Status.LastReconcileTime = &metav1.Time{Time: now}
			}
		},
	}
}

// apply writes the namespace, the rights in it, the limits, and the binding in the namespace of Tekton. Each step relies on those
// before it, so the first problem ends the list. An error that is no problem of the Project is in failed.
func (r *Reconciler) apply(ctx context.Context, p *kibashipv1.Project, s *State, problems *outcome.Problems) error {
	in := r.inputs(p, s.Observed)
	if len(*problems) == 0 {
		if err := r.prepareNamespace(ctx, p, s); err != nil {
			return err
		}
	}
	var failed error
	for _, step := range []func(){
		func() { problems.Add(checkNamespace(p, s.Observed)) },
		func() {
			ns, err := apply.Apply(ctx, r.recording(), r.tokens.Complete(namespaceOwner(p)), namespace(in))
			problems.Add(newProblem(kibashipv1.ConditionNamespaceReady, kibashipv1.ReasonNamespaceConflict, err))
			if err == nil {
				s.NamespaceUID, s.NamespaceCreated = ns.UID, s.Namespace == nil
			}
		},
		func() {
			problems.Add(checkAdmin(s.Observed, r.Config.ProjectAdmin))
			problems.Add(checkPolicies(kibashipv1.ConditionAccessReady, s.Observed, s.Bound))
		},
		func() {
			for _, failure := range apply.Steps(ctx, r.Writer, ownerFor(p), naming.Namespace(p.Name), plan(in, granted)) {
				problems.Add(newProblem(failure.Condition, kibashipv1.ReasonOwnershipConflict, failure.Err))
			}
		},
		func() {
			var wider *outcome.Problem
			wider, failed = r.checkBounds(ctx, p, in)
			problems.Add(wider)
		},
		func() {
			problems.Add(checkTekton(s.Observed, s.Mode))
			if in.Tekton {
				problems.Add(checkPolicies(kibashipv1.ConditionTektonIntegrated, s.Observed, s.Integrated))
			}
			if in.Tekton && problems.On(kibashipv1.ConditionTektonIntegrated) == nil {
				problems.Add(newProblem(kibashipv1.ConditionTektonIntegrated, kibashipv1.ReasonOwnershipConflict, r.integrate(ctx, p, in)))
			}
		},
	} {
		if len(*problems) > 0 || failed != nil {
			break
		}
		step()
	}
	return failed
}

// prepareNamespace makes sure that the namespace can be created. A new Project costs a read and a write for that.
func (r *Reconciler) prepareNamespace(ctx context.Context, p *kibashipv1.Project, s *State) (err error) {
	// The hash of the token is in the status before the namespace is created with the token. So a namespace that was created and
	// not recorded is still recognised.
	s.Namespace, err = apply.PrepareNamespace(ctx, r.Writer, r.tokens.Complete(namespaceOwner(p)), s.Namespace, naming.Namespace(p.Name), func() error {
		before := p.DeepCopy()
		p.Status.NamespaceUID, p.Status.NamespaceTokenHash = "", r.tokens.Draw()
		return r.kind.PatchStatus(ctx, before, p, r.Clock.Now())
	})
	return err
}

// recording returns a writer that records the requested fields on the namespace, so that the
// operator can remove them again. The record tells a label that the spec asked for from one that an administrator set.
func (r *Reconciler) recording() apply.Writer {
	w := r.Writer
	w.Record = kibashipv1.AnnotationApplied
	return w
}
