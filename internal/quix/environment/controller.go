package environment

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
	"sigs.k8s.io/controller-runtime/pkg/log"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler creates, repairs and deletes Environments.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Writer writes what belongs to an environment.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.Quix
	// Workers is how many environments are worked on at the same time.
	Workers int

	backoff    *outcome.Backoff
	finalizers finalizer.Remover
}

// The right to bind is a rule of its own: it names the one ClusterRole, and the
// operator needs none of the rights that this role grants. Whoever renames the
// role (CLUSTER_ROLE_NAME) gives the operator the right to bind that one.
//
// +kubebuilder:rbac:groups=quix.io,resources=environments,verbs=list;watch;patch
// +kubebuilder:rbac:groups=quix.io,resources=environments/status,verbs=patch
// +kubebuilder:rbac:groups=quix.io,resources=environments/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=quix-platform-account-role,verbs=bind
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reconcile brings one environment a step further, or leaves it alone when there is
// nothing to do. Events alone wake it.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (never time.Duration, err error) {
	env := &quixv1.Environment{}
	if err := outcome.WrapNotFound(r.Client.Get(ctx, req.NamespacedName, env)); err != nil {
		if errors.Is(err, outcome.ErrGone) {
			r.finalizers.Forget(req.NamespacedName)
		}
		return never, err
	}
	r.backoff.ResetIfReplaced(req, env.UID)
	now := r.Clock.Now()
	if env.DeletionTimestamp != nil {
		return never, r.finalize(ctx, env, now)
	}
	return never, r.keep(ctx, env, now)
}

// keep makes a live environment what it should be.
func (r *Reconciler) keep(ctx context.Context, env *quixv1.Environment, now time.Time) error {
	held := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, env, quixv1.Finalizer))
	if held != nil && outcome.CauseOf(held) != outcome.Rejected {
		return held
	}
	if err := r.start(ctx, env, now); err != nil {
		return err
	}
	observed, err := r.observe(ctx, env)
	if err != nil {
		return err
	}

	before := env.DeepCopy()
	out := r.build(ctx, env, observed, finalizerProblem(held))
	if out.raced() {
		return outcome.ErrConflict
	}
	computeStatus(env, out, now)
	if err := r.patchStatus(ctx, before, env, now); err != nil {
		return reconcile.Join(out.err(), err)
	}
	r.report(before, env, out, now)
	return out.err()
}

// start persists the names before anything has them: the suffix may be another
// one after a restart.
func (r *Reconciler) start(ctx context.Context, env *quixv1.Environment, now time.Time) error {
	if namespaceName(env) != "" && roleBindingName(env) != "" {
		return nil
	}
	before := env.DeepCopy()
	computeStarted(env, r.Config.NamespaceSuffix, now)
	if err := r.patchStatus(ctx, before, env, now); err != nil {
		return err
	}
	created.Inc()
	return nil
}

// build applies the plan. The namespace comes first and the binding last, so that nothing
// is granted that was not judged before. While the finalizer is refused nothing is made or
// granted: a deletion would be missed.
func (r *Reconciler) build(ctx context.Context, env *quixv1.Environment, o Observed, held *outcome.Problem) Outcome {
	out := Outcome{Observed: o}
	cfg := r.Config
	in := inputs(env, o, cfg)

	if out.Namespace = checkNamespace(env, o, cfg.IDPattern); out.Namespace == nil {
		out.Namespace = held
	}
	if out.Namespace == nil {
		_, err := apply.Apply(ctx, r.recording(), namespaceOwner(env), namespace(in))
		out.Namespace = namespaceProblem(o, err)
		out.NamespaceCreated = err == nil && o.Namespace == nil
	}
	out.Role = checkRole(o.Role, cfg.ClusterRoleName)
	// Whether the namespace could be written or not, rights that are too wide are
	// taken away, and so are those of a role that nobody watches any more.
	if out.violation() && cfg.RoleViolationPolicy == config.RoleViolationUnbind || out.Role != nil && boundElsewhere(in) {
		if err := r.unbind(ctx, env); err != nil {
			out.RoleBinding = retried(quixv1.ConditionRoleBindingReady, quixv1.ReasonRoleBindingDeletionFailed, err)
		} else if out.Observed.RoleBinding != nil {
			out.Observed.RoleBinding = nil
			unbound.Inc()
		}
	}
	if out.problem() == nil {
		desired := roleBinding(in)
		_, err := apply.Apply(ctx, r.replacing(), roleBindingOwner(env), desired)
		out.RoleBinding = roleBindingProblem(o, err)
		out.RoleBindingCreated = err == nil && o.RoleBinding == nil
		if off := takenOff(in, desired); err == nil && len(off) > 0 {
			log.FromContext(ctx).Info("took subjects off the role binding", "roleBinding", roleBindingKey(env), "subjects", off)
		}
	}
	return out
}

// unbind takes the platform's rights away. The cache leaves out a binding that
// has lost its label: so the API server is asked too, and later reads do not wait
// for a deletion that the cache may never show.
func (r *Reconciler) unbind(ctx context.Context, env *quixv1.Environment) error {
	key := roleBindingKey(env)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	exists, err := apply.Find(ctx, r.Writer, binding)
	if err != nil || !exists || !roleBindingOwner(env).Owns(binding) {
		return err
	}
	return apply.Delete(ctx, r.Client, binding, client.DisableReadYourWritesConsistency)
}

// recording notes on the namespace what the environment asked for, so that it
// can be taken off again.
func (r *Reconciler) recording() apply.Writer {
	w := r.Writer
	w.Record = quixv1.AnnotationApplied
	return w
}

// replacing makes a binding again that grants another role: the API server does not change
// which one.
func (r *Reconciler) replacing() apply.Writer {
	w := r.Writer
	w.Replace = true
	return w
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, env *quixv1.Environment, now time.Time) error {
	return reconcile.Status[*quixv1.Environment]{
		Client: r.Client,
		Of:     func(e *quixv1.Environment) any { return &e.Status },
		Bound:  func(e *quixv1.Environment) { cut(&e.Status) },
		Touch:  func(e *quixv1.Environment) { e.Status.LastUpdated = &metav1.Time{Time: now} },
		Rejected: func(e *quixv1.Environment, err error) {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, e, quixv1.ReasonRefused, actionObserve,
				"The API server refuses the status of this Environment: "+err.Error())
		},
	}.Patch(ctx, before, env)
}
