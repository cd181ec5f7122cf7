package challengeinstance

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/reach"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/berg/stop"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challenges,verbs=get;list;watch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=system
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=apps,resources=daemonsets,resourceNames=cilium,verbs=list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes;tlsroutes,verbs=get;list;watch;create;update;delete
// A route is served when its Gateway says so, and a Service when it leads to a pod.
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=gateways;gatewayclasses,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch
// +kubebuilder:rbac:groups=cilium.io,resources=ciliumnetworkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// Only events say why a node refuses a pod. The cache keeps no events about foreign pods.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=list;watch;create;patch

// rememberedCopies exceeds the number of instances that are being built at a time.
const rememberedCopies = 4096

// immediately is the delay of the next reconciliation or round when more is to be written.
const immediately = time.Nanosecond

// newKind returns the reconciliation of started instances and of instances that are being deleted. The admitter writes
// instances that were not started, and the controller of expiries ends expired ones.
func (r *Reconciler) newKind() *kind {
	return &kind{
		Client: r.Client, Live: r.Live, Events: r.Events, Clock: r.Clock, Metrics: reconcileMetrics,
		Finalizer: bergv1.Finalizer, FinalizerCondition: bergv1.ConditionNamespaceCreated,
		// Another controller writes these instances. Two writers of one status would only cause conflicts.
		Skip: func(i *bergv1.ChallengeInstance, now time.Time) bool {
			return i.Status.InstanceID == "" || status.DueTermination(i, r.Config.Challenge, now) != ""
		},
		Observe: r.observe,
		Check: func(_ *bergv1.ChallengeInstance, out *status.Outcome) (problems outcome.Problems) {
			problems.Add(status.Check(out.Observed, r.settings(out.Observed)))
			return problems
		},
		Apply: r.apply,
		Status: func(_ *bergv1.ChallengeInstance, out status.Outcome, problems outcome.Problems, now time.Time) reconcile.Ready {
			out.Problem = problems.First()
			return status.Compute(out, r.settings(out.Observed), now)
		},
		Report: func(_ context.Context, before, _ *bergv1.ChallengeInstance, out status.Outcome, problems outcome.Problems, now time.Time) {
			r.report(before, out, problems, now)
		},
		AfterStatus: func(ctx context.Context, _ *bergv1.ChallengeInstance, out status.Outcome, problems outcome.Problems, _ error, now time.Time) error {
			if problems.First() != nil {
				return nil
			}
			return r.retryRefused(ctx, out.Observed, now)
		},
		RequeueAfter: r.requeueAfter,
		Finalize:     r.finalize,
		Forget: func(_ context.Context, key types.NamespacedName) error {
			r.forget(key)
			return nil
		},
		Redact: func(_ context.Context, i *bergv1.ChallengeInstance, err error) error {
			return redact.Error(err, i.Spec.Flag)
		},
	}
}

// apply brings a started instance further. The status must name the content and the namespace token before objects are
// written. A reconciliation that decides about either writes no object: its status is persisted, and the next
// reconciliation builds.
func (r *Reconciler) apply(ctx context.Context, i *bergv1.ChallengeInstance, out *status.Outcome, problems *outcome.Problems) error {
	now := r.Clock.Now()
	// From the claim on this reconciliation must write no object. The player's instance may already have written the flag into
	// them.
	if i.Status.ClaimedBy != nil {
		return r.handOver(ctx, i)
	}
	if status.Withdrawn(out.Candidate) && r.Config.Challenge.WithdrawalPolicy == config.WithdrawalStop {
		return r.withdraw(ctx, i, now)
	}
	notStored, err := r.decide(ctx, out, problems, now)
	if err != nil {
		return err
	}
	if out.Adopted == nil && problems.First() == nil {
		var problem *outcome.Problem
		out.Endpoints, problem = r.build(ctx, &out.Observed, &out.Written)
		problems.Add(problem)
		// The build ends at the policies that cannot be written, but pods of an earlier build still run.
		if err := r.stopUnconfined(ctx, out.Observed, problem); err != nil {
			return outcome.WrapNotFound(err)
		}
		out.Problem = problem
		if problem == nil {
			var err error
			if out.RequeueAfter, err = r.notifyPods(ctx, out.Observed, now); err != nil {
				return err
			}
		}
		// It comes after the build, whose result says which ports exist, and before the status, which says whether the instance
		// waits for a connection.
		r.connect(out, now) //nolint:contextcheck // the connection outlives the reconciliation, which does not wait for it
	}
	problems.Add(notStored)
	stopping, err := r.stopWithNamespace(ctx, out.Observed, now)
	out.RequeueAfter = status.Sooner(out.RequeueAfter, stopping.Again)
	return err
}

// decide finds out whether the instance adopts its Challenge, or needs a namespace that it may create. Lost content is the
// only problem that an adoption solves, so that problem alone does not prevent one. notStored is why the Challenge cannot be
// adopted: the instance keeps its content, and is repaired. It writes nothing. Adoption comes before the namespace, since an
// instance whose content is lost cannot be built, and cannot have another namespace.
func (r *Reconciler) decide(ctx context.Context, out *status.Outcome, problems *outcome.Problems, now time.Time) (notStored *outcome.Problem, err error) {
	if p := problems.First(); p == nil || p.Reason == bergv1.ReasonRevisionMissing {
		if out.Adopted, notStored, err = r.adopt(ctx, &out.Observed, now); err != nil {
			return nil, err
		}
		if out.Adopted != nil {
			// A problem of the old content does not concern the new one.
			*problems = nil
			if out.Instance.Status.ReadyAt == nil {
				problems.Add(status.BeingBuilt)
			}
			return nil, nil
		}
	}
	if problems.First() != nil {
		return notStored, nil
	}
	if err := r.prepareNamespace(ctx, out); err != nil {
		return nil, err
	}
	if out.NamespaceTokenHash != "" {
		problems.Add(status.BeingBuilt)
	} else {
		problems.Add(status.NamespaceIsOurs(out.Candidate, out.Namespace))
	}
	return notStored, nil
}

// withdraw ends an instance whose Challenge was deleted. Its deletion leads to the next reconciliation.
func (r *Reconciler) withdraw(ctx context.Context, instance *bergv1.ChallengeInstance, now time.Time) error {
	err := outcome.WrapNotFound(r.terminate(ctx, instance, bergv1.TerminationAdmin))
	if outcome.Classify(err) == outcome.Rejected {
		r.reportBlocked(ctx, instance, bergv1.TerminationAdmin, err, now)
	}
	if err == nil {
		err = reconcile.ErrDeferred
	}
	return err
}

// stopWithNamespace stops the pods of an instance whose namespace another client deletes. Without it Kubernetes may delete
// the network policies before the processes have ended: see package stop.
func (r *Reconciler) stopWithNamespace(ctx context.Context, o status.Observed, now time.Time) (stop.Remaining, error) {
	if o.Namespace == nil || o.Namespace.DeletionTimestamp == nil || !manifests.NamespaceOwner(o.Instance).Owns(o.Namespace) {
		return stop.Remaining{}, nil
	}
	return stop.Pods(ctx, r.Client, o.Namespace.Name, r.policies(ctx).OutlivesNamespace(), now)
}

// connect observes whether the programs and the public ports of an instance accept connections. It does not wait for them:
// the instance is enqueued when they do, or when the timeout is over.
//
// Early connects to pods that run and are not ready yet: its result comes sooner than the startup probe of the node. Over
// connects to the node ports of ready pods, which the data plane may serve a moment later, and Gate to the listeners of the
// Gateway. An instance that was ready is
// not connected to again; the result of Early counts until the nodes report its pods as ready. The results are kept in
// memory only: after a restart of the operator the next reconciliation connects again.
func (r *Reconciler) connect(out *status.Outcome, now time.Time) {
	key, challenge := client.ObjectKeyFromObject(out.Instance), out.Instance.Spec.ChallengeRef
	id := reach.Instance{UID: out.Instance.UID, Challenge: types.NamespacedName{Namespace: challenge.Namespace, Name: challenge.Name}}
	requeue := func() { r.enqueueReady(ctrl.Request{NamespacedName: key}) }
	opening := status.ToOpen(*out, now)
	out.Opened = r.Reach.Early(key, id, opening.Pods, opening.Addresses, requeue)
	if out.Instance.Status.ReadyAt == nil {
		out.Connecting = !out.Opened && !r.Reach.Over(key, id, status.ToConnect(*out, now), requeue)
		if !out.Connecting && out.Pinned != nil {
			out.Connecting = r.reachGateway(out, key, now, requeue)
		}
		return
	}
	if len(opening.Pods) == 0 {
		r.Reach.Forget(key)
	}
}

// requeueAfter returns after how long time alone changes the status. After a reconciliation that only decided, nothing but
// this delay leads to the build.
func (r *Reconciler) requeueAfter(i *bergv1.ChallengeInstance, out status.Outcome, _ outcome.Problems, now time.Time) time.Duration {
	if out.Adopted != nil || out.NamespaceTokenHash != "" {
		return immediately
	}
	if out.Pinned != nil && status.HasRoutes(out.Pinned.Containers) && view.PublicCause(i) != out.Published {
		return immediately // its routes name the cause for players
	}
	delay := status.UntilStartDeadline(i, r.Config.Challenge, r.Clock.Now())
	for _, other := range []time.Duration{status.UntilRetry(out.Observed, now), status.UntilSettled(out.Observed, now), status.UntilReachable(out, now), out.RequeueAfter} {
		delay = status.Sooner(delay, other)
	}
	return delay
}

// forget drops the state in memory of an instance that no longer exists.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.terminations.forget(key)
	r.Reach.Forget(key)
	if r.Recorder != nil {
		r.Recorder.Forget(key)
	}
}
