package environment

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The right to bind is a separate rule that names one ClusterRole: with it, the operator needs none of the rights that the
// role grants. A person who sets another role (CLUSTER_ROLE_NAME) must give the operator the right to bind that one.
//
// +kubebuilder:rbac:groups=quix.io,resources=environments,verbs=list;watch;patch
// +kubebuilder:rbac:groups=quix.io,resources=environments/status,verbs=patch
// +kubebuilder:rbac:groups=quix.io,resources=environments/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=quix-platform-account-role,verbs=bind
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=berg-operator-fence,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=environments.quix.io,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// newKind returns the steps that are particular to Environments; kit/reconcile does the rest.
func (r *Reconciler) newKind() *reconcile.Kind[*quixv1.Environment, State] {
	return &reconcile.Kind[*quixv1.Environment, State]{
		Client: r.Client, Live: r.Writer.Live, Events: r.Events, Clock: r.Clock, Metrics: reconcileMetrics,
		Finalizer: quixv1.Finalizer, FinalizerCondition: quixv1.ConditionNamespaceReady,
		Observe:  r.observe,
		Check:    func(env *quixv1.Environment, s *State) outcome.Problems { return check(env, s.Observed, r.Config) },
		Apply:    r.apply,
		Status:   computeStatus,
		Report:   r.report,
		Finalize: r.finalize,
		Forget: func(_ context.Context, key types.NamespacedName) error {
			r.live.Delete(key)
			return nil
		},
		Bound: func(env *quixv1.Environment) { boundMessages(&env.Status) },
		Touch: func(env *quixv1.Environment, now time.Time) { env.Status.LastUpdated = &metav1.Time{Time: now} },
	}
}

// apply writes the namespace first and the binding last, so that nothing is granted that was not checked before.
func (r *Reconciler) apply(ctx context.Context, env *quixv1.Environment, s *State, problems *outcome.Problems) error {
	in := Inputs{env, s.RoleBinding, r.Config}
	role := problems.On(quixv1.ConditionRoleValidated)
	if problems.On(quixv1.ConditionNamespaceReady) == nil {
		problems.Add(namespaceProblem(s.Observed, r.takeOver(ctx, env, s)))
	}
	if problems.On(quixv1.ConditionNamespaceReady) == nil {
		if err := r.prepareNamespace(ctx, env, s); err != nil {
			return err
		}
		// Once more, because prepareNamespace has read the namespace from the API server.
		problems.Add(checkNamespace(env, s.Observed, r.Config.IDPattern))
	}
	if problems.On(quixv1.ConditionNamespaceReady) == nil {
		ns, err := apply.Apply(ctx, r.recording(), r.tokens.Complete(namespaceOwner(env)), namespace(in))
		problems.Add(namespaceProblem(s.Observed, err))
		if err == nil {
			s.NamespaceUID, s.NamespaceCreated = ns.UID, s.Namespace == nil
		}
	}
	// Rights that are too wide are revoked even if the namespace could not be written, and so are rights through a
	// role that the operator no longer watches.
	if isViolation(role) && r.Config.RoleViolationPolicy == config.RoleViolationUnbind || role != nil && boundElsewhere(in) {
		if err := r.unbind(ctx, env); err != nil {
			problems.Add(retryProblem(quixv1.ConditionRoleBindingReady, quixv1.ReasonRoleBindingDeletionFailed, err))
		} else if s.RoleBinding != nil {
			s.RoleBinding = nil
			unbound.Inc()
		}
	}
	if len(*problems) > 0 {
		return nil
	}
	if err := r.takeOverBinding(ctx, env, s); err != nil {
		problems.Add(roleBindingProblem(s.Observed, err))
		return nil
	}
	desired := roleBinding(Inputs{env, s.RoleBinding, r.Config})
	_, err := apply.Apply(ctx, r.replacing(), roleBindingOwner(env), desired)
	problems.Add(roleBindingProblem(s.Observed, err))
	s.RoleBindingCreated = err == nil && s.RoleBinding == nil
	if off := removedSubjects(in, desired); err == nil && len(off) > 0 {
		log.FromContext(ctx).Info("removed subjects from the role binding", "roleBinding", roleBindingKey(env), "subjects", off)
	}
	return nil
}

// prepareNamespace makes sure that the namespace can be created. The digest of the token is in the status before the namespace is
// created with the token. A namespace whose creation was not recorded is recognised by it.
func (r *Reconciler) prepareNamespace(ctx context.Context, env *quixv1.Environment, s *State) (err error) {
	s.Namespace, err = apply.PrepareNamespace(ctx, r.Writer, r.tokens.Complete(namespaceOwner(env)), s.Namespace, namespaceName(env), func() error {
		before := env.DeepCopy()
		env.Status.NamespaceUID, env.Status.NamespaceTokenHash = "", r.tokens.Draw()
		return r.kind.PatchStatus(ctx, before, env, r.Clock.Now())
	})
	return err
}

// recording records on the namespace which keys the environment asked for, so that they can be removed again.
func (r *Reconciler) recording() apply.Writer {
	w := r.Writer
	w.Record = quixv1.AnnotationApplied
	return w
}

// replacing recreates a binding that grants another role: the API server does not let a role reference change.
func (r *Reconciler) replacing() apply.Writer {
	w := r.Writer
	w.Replace = true
	return w
}
