package challengeinstance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Reconciler builds, watches and ends ChallengeInstances.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Live reads from the API server.
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.Config

	pauses workqueue.TypedRateLimiter[reconcile.Request]
}

// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challenges,verbs=get;list;watch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=system
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes;tlsroutes,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=cilium.io,resources=ciliumnetworkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// conflictPause is how long we wait for the cache to show the write that ours
	// collided with, when that write's own event does not wake us.
	conflictPause = 200 * time.Millisecond
	// The pauses between attempts at an instance that the API server refuses.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Minute
	// longestPass bounds one reconciliation, should the API server not answer.
	longestPass = time.Minute
)

// Reconcile brings one instance a step further, or leaves it alone when there is
// nothing to do.
//
// It returns no errors: for one, the queue would choose the pause alone, and an
// instance that keeps failing would miss its expiry.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	began := r.Clock.Now()
	result, err := r.reconcile(ctx, req)
	switch {
	case err == nil, apierrors.IsNotFound(err): // the instance went away under us
		r.pauses.Forget(req)
		err = nil
	case apierrors.IsConflict(err):
		result.RequeueAfter, err = conflictPause, nil
	case errors.Is(ctx.Err(), context.Canceled): // we are being shut down
		return ctrl.Result{}, nil
	default:
		log.FromContext(ctx).Error(err, "not done, will be tried again")
		pause := r.pauses.When(req)
		if result.RequeueAfter == 0 || pause < result.RequeueAfter {
			result.RequeueAfter = pause
		}
	}
	observeReconcile(r.Clock.Since(began), err)
	return result, nil
}

func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	instance := &bergv1.ChallengeInstance{}
	if err := r.Client.Get(ctx, req.NamespacedName, instance); err != nil {
		return ctrl.Result{}, err
	}
	now := r.Clock.Now()
	if instance.DeletionTimestamp != nil {
		return ctrl.Result{}, r.finalize(ctx, instance, now)
	}
	if reason := dueTermination(instance, r.Config.Challenge, now); reason != "" {
		return ctrl.Result{}, r.terminate(ctx, instance, reason)
	}
	if err := r.ensureFinalizer(ctx, instance); err != nil {
		return ctrl.Result{}, err
	}

	observed, err := r.observe(ctx, instance)
	if err != nil {
		return ctrl.Result{}, err
	}
	if r.Config.Challenge.WithdrawalPolicy == config.WithdrawalStop && observed.Challenge == nil && instance.Status.ChallengeSnapshot != nil {
		return ctrl.Result{}, r.terminate(ctx, instance, bergv1.TerminationAdmin)
	}

	out := Outcome{Observed: observed}
	out.Problem = judge(instance, observed, r.challengeKey(instance).String())
	if out.Problem == nil {
		if err := r.start(ctx, instance, observed, now); err != nil {
			return ctrl.Result{}, err
		}
	}
	before := instance.DeepCopy()
	if instance.Status.ChallengeSnapshot != nil {
		pinned, err := parseSnapshot(instance.Status.ChallengeSnapshot)
		if err != nil {
			return ctrl.Result{}, err
		}
		out.Pinned = &pinned
	}
	if out.Problem == nil {
		out.Endpoints, out.Problem = r.build(ctx, instance, *out.Pinned)
	}
	if out.Pinned != nil {
		if out.Observed.Pods, err = r.observePods(ctx, instance); err != nil {
			return ctrl.Result{}, err
		}
	}

	derive(instance, out, r.Config.Challenge, now)
	setExpiry(instance, r.Config.Challenge)
	err = r.patchStatus(ctx, before, instance)
	if err == nil {
		r.report(before, instance, out)
	}
	if p := out.Problem; p != nil && p.Err != nil {
		err = joinPatch(p.Err, err)
	}
	return ctrl.Result{RequeueAfter: wakeUp(instance, r.Config.Challenge, now)}, err
}

// ensureFinalizer persists the finalizer before anything else is written, so
// that no deletion goes by unseen.
func (r *Reconciler) ensureFinalizer(ctx context.Context, instance *bergv1.ChallengeInstance) error {
	if controllerutil.ContainsFinalizer(instance, bergv1.Finalizer) {
		return nil
	}
	before := instance.DeepCopy()
	controllerutil.AddFinalizer(instance, bergv1.Finalizer)
	return r.Client.Patch(ctx, instance, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// start persists what makes this instance this instance, before the first child
// that carries it; later, it adopts the Challenge as it is now when a new
// rollout is asked for.
func (r *Reconciler) start(ctx context.Context, instance *bergv1.ChallengeInstance, observed Observed, now time.Time) error {
	rollout := instance.Annotations[bergv1.AnnotationRollout]
	adopt := rollout != instance.Status.ObservedRollout && observed.Challenge != nil && judgeChallenge(observed.Challenge, "") == nil
	if instance.Status.InstanceID != "" && !adopt {
		return nil
	}
	before := instance.DeepCopy()
	s := &instance.Status
	if s.InstanceID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make an instance ID: %w", err)
		}
		s.InstanceID = id.String()
		s.StartedAt = &metav1.Time{Time: now.Truncate(time.Second)}
		s.Namespace = NamespaceName(instance.Spec.OwnerID)
		s.Phase = bergv1.PhasePending
		s.ObservedGeneration = instance.Generation
	}
	raw, err := snapshotOf(observed.Challenge).raw()
	if err != nil {
		return err
	}
	s.ChallengeSnapshot = raw
	s.ChallengeGeneration = observed.Challenge.Generation
	s.ObservedRollout = rollout
	setExpiry(instance, r.Config.Challenge)
	if err := r.patchStatus(ctx, before, instance); err != nil {
		return err
	}
	r.reportStarted(before, instance)
	return nil
}

// build applies the plan, in the order in which a pod could do harm if something
// before it were missing. It returns the endpoints once every Service stands.
func (r *Reconciler) build(ctx context.Context, instance *bergv1.ChallengeInstance, pinned Snapshot) ([]Endpoint, *Problem) {
	in := r.inputs(instance, pinned)
	problem := func(condition string, err error) *Problem { return problemOf(condition, err, in.Flag) }

	f, err := planFoundation(in)
	if err != nil {
		return nil, &Problem{Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonInvalidFlag, Class: Blocked, Message: redact(err.Error(), in.Flag)}
	}
	w, proof := apply.Writer{Client: r.Client, Live: r.Live}, proofOf(instance)
	if _, err := apply.Apply(ctx, w, proof, f.Namespace); err != nil {
		return nil, problem(bergv1.ConditionNamespaceCreated, err)
	}
	if _, err := apply.Apply(ctx, w, proof, f.NetworkPolicy); err != nil {
		return nil, problem(bergv1.ConditionNetworkPolicyCreated, err)
	}
	services, err := applyAll(ctx, w, proof, f.Services)
	if err != nil {
		return nil, problem(bergv1.ConditionServicesCreated, err)
	}
	endpoints, err := endpoints(in, services)
	if err != nil {
		return nil, problem(bergv1.ConditionServicesCreated, err)
	}
	if _, err := applyAll(ctx, w, proof, f.HTTPRoutes); err != nil {
		return endpoints, problem(bergv1.ConditionRoutesCreated, err)
	}
	if _, err := applyAll(ctx, w, proof, f.TLSRoutes); err != nil {
		return endpoints, problem(bergv1.ConditionRoutesCreated, err)
	}
	if err := r.applyWorkloads(ctx, w, proof, instance, in, f, endpoints); err != nil {
		return endpoints, problem(bergv1.ConditionDeploymentsCreated, err)
	}
	return endpoints, nil
}

// applyWorkloads writes what runs, and deletes what no longer belongs.
func (r *Reconciler) applyWorkloads(ctx context.Context, w apply.Writer, proof ownership.Proof, instance *bergv1.ChallengeInstance, in Inputs, f Foundation, endpoints []Endpoint) error {
	if _, err := applyAll(ctx, w, proof, f.ConfigMaps); err != nil {
		return err
	}
	if _, err := applyAll(ctx, w, proof, f.DisruptionBudgets); err != nil {
		return err
	}
	if err := r.copyPullSecret(ctx, instance, in); err != nil {
		return err
	}
	deployments := planWorkloads(in, endpoints)
	if _, err := applyAll(ctx, w, proof, deployments); err != nil {
		return err
	}
	ns := in.namespace()
	return errors.Join(
		apply.Prune(ctx, w, proof, &appsv1.DeploymentList{}, ns, named(deployments)),
		apply.Prune(ctx, w, proof, &corev1.ServiceList{}, ns, named(f.Services)),
		apply.Prune(ctx, w, proof, &corev1.ConfigMapList{}, ns, named(f.ConfigMaps)),
		apply.Prune(ctx, w, proof, &policyv1.PodDisruptionBudgetList{}, ns, named(f.DisruptionBudgets)),
		apply.Prune(ctx, w, proof, &gatewayv1.HTTPRouteList{}, ns, named(f.HTTPRoutes)),
		apply.Prune(ctx, w, proof, &gatewayv1.TLSRouteList{}, ns, named(f.TLSRoutes)),
		apply.Prune(ctx, w, proof, &ciliumv2.CiliumNetworkPolicyList{}, ns, named([]*ciliumv2.CiliumNetworkPolicy{f.NetworkPolicy})),
	)
}

func applyAll[T client.Object](ctx context.Context, w apply.Writer, proof ownership.Proof, desired []T) ([]T, error) {
	live := make([]T, 0, len(desired))
	for _, d := range desired {
		l, err := apply.Apply(ctx, w, proof, d)
		if err != nil {
			return nil, err
		}
		live = append(live, l)
	}
	return live, nil
}

// named reports whether a name is that of one of the objects.
func named[T client.Object](objects []T) func(string) bool {
	return func(name string) bool {
		for _, o := range objects {
			if o.GetName() == name {
				return true
			}
		}
		return false
	}
}

func (r *Reconciler) inputs(instance *bergv1.ChallengeInstance, pinned Snapshot) Inputs {
	key := r.challengeKey(instance)
	return Inputs{
		UID:                instance.UID,
		Name:               client.ObjectKeyFromObject(instance),
		InstanceID:         instance.Status.InstanceID,
		OwnerID:            instance.Spec.OwnerID,
		Flag:               instance.Spec.Flag,
		ChallengeName:      key.Name,
		ChallengeNamespace: key.Namespace,
		Challenge:          pinned,
		Config:             r.Config.Challenge,
		Gateway:            r.Config.Gateway,
	}
}

// terminate asks for the deletion of a live instance; finalize does the rest.
func (r *Reconciler) terminate(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
	if instance.Spec.TerminationReason != reason {
		before := instance.DeepCopy()
		instance.Spec.TerminationReason = reason
		// With the lock an extension at the last moment wins over the expiry.
		err := r.Client.Patch(ctx, instance, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err != nil {
			return err
		}
	}
	if err := apply.Delete(ctx, r.Client, instance); err != nil {
		return err
	}
	if reason == bergv1.TerminationTimeout {
		timeouts.Inc()
	}
	return nil
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, instance *bergv1.ChallengeInstance) error {
	if equality.Semantic.DeepEqual(before.Status, instance.Status) {
		return nil
	}
	return r.Client.Status().Patch(ctx, instance, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func joinPatch(err, patch error) error {
	if apierrors.IsConflict(patch) {
		patch = nil // err brings us back anyway
	}
	return errors.Join(err, patch)
}
