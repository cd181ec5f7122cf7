package challengeinstance

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/precedence"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler builds, watches and terminates ChallengeInstances.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Writer writes everything that belongs to an instance.
	Writer apply.Writer
	// Starts are the first passes of new instances under way: others let them go first.
	Starts *precedence.Precedence
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.Berg
	// Workers is how many instances are built at the same time.
	Workers int
	// Namespace is the operator's own: the pull secret is read from there.
	Namespace string
	// Presence is what Client, Live and Writer know missing kinds by. Direct reads from the
	// API server past it, to find out whether a kind is there by now.
	Presence *optional.Presence
	Direct   client.Reader
	// Recorder keeps something of instances that end. Nil: nothing is.
	Recorder Recorder

	backoff      *outcome.Backoff
	former       formerPolicies
	turns        turns
	calls        calls
	terminations terminations
	queue        queueing
	// yields are the workers that give way.
	yields chan struct{}
	// copies are the versions of the pull secret that instances being built have under
	// its own name. What is forgotten here, or by a restart, is copied once more.
	copies *lru.Cache
}

// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challenges,verbs=get;list;watch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=system
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes;tlsroutes,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=cilium.io,resources=ciliumnetworkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// Why a node refuses a pod stands in events alone; those of foreign pods are not kept.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=list;watch;create;patch

const (
	// maxYield is how long what is written about an instance that only waits for another
	// lets starts under way go first: nobody waits for it, and an owner may have hundreds.
	maxYield = 500 * time.Millisecond
	// rememberedCopies are more than are being built at a time.
	rememberedCopies = 4096
)

// errBusy says that another instance of the same owner is being worked on. The request is
// called again when that has ended: nothing else is to be done about it.
var errBusy = fmt.Errorf("another instance of the owner is being worked on: %w", reconcile.ErrDeferred)

// reconcile brings one instance a step further, or leaves it alone when there is nothing
// to do. It returns after how long time alone will change something, zero for never.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (again time.Duration, err error) {
	instance := &bergv1.ChallengeInstance{}
	defer func() { err = redact.Error(err, instance.Spec.Flag) }()
	done, err := r.getInTurn(ctx, turn{&r.calls, req}, instance)
	if err != nil {
		return 0, err
	}
	defer done()
	r.backoff.ResetIfReplaced(req, instance.UID)
	if instance.DeletionTimestamp != nil {
		r.turns.goesOn(instance)
		return 0, nil // the controller of deletions terminates it
	}
	now := r.Clock.Now()
	if status.DueTermination(instance, r.Config.Challenge, now) != "" {
		return 0, nil // the controller of expiries deletes it
	}
	view, err := r.observe(ctx, instance)
	if err != nil {
		return 0, err
	}
	problem := status.Check(view, r.Config.Challenge)
	busy := problem != nil && problem.Reason == bergv1.ReasonOwnerBusy
	switch {
	case busy:
		r.giveWay(ctx)
	case instance.Status.InstanceID == "":
		defer r.Starts.Take()()
	}
	held := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, instance, bergv1.Finalizer))
	if held != nil && outcome.CauseOf(held) != outcome.Rejected {
		return 0, held
	}
	if status.Withdrawn(view.Candidate) && r.Config.Challenge.WithdrawalPolicy == config.WithdrawalStop {
		err := outcome.WrapNotFound(r.terminate(ctx, instance, bergv1.TerminationAdmin))
		if outcome.CauseOf(err) == outcome.Rejected {
			r.reportBlocked(ctx, instance, bergv1.TerminationAdmin, err, now)
		}
		return 0, err
	}

	if problem == nil && held != nil {
		// Without it a deletion would be missed.
		problem = status.ProblemOf(bergv1.ConditionNamespaceCreated, fmt.Errorf("put a finalizer on the instance: %w", held), instance.Spec.Flag)
	}
	out := status.Outcome{Observed: view, Problem: problem}
	if !busy {
		r.turns.goesOn(instance)
	}
	fresh := instance.Status.InstanceID == ""
	if err := r.admit(ctx, &out); err != nil {
		return 0, err
	}
	if out.Problem == nil {
		if err := r.start(ctx, &out.Observed, now); err != nil {
			if fresh {
				r.notStarted(instance, err)
			}
			return 0, err
		}
		out.Endpoints, out.Problem = r.build(ctx, out.Observed, &out.Written)
	}
	if out.Problem != nil && out.Problem.Class == outcome.Stale {
		return 0, outcome.ErrConflict
	}
	var retried error
	if out.Problem == nil {
		retried = r.retryRefused(ctx, out.Observed, now)
	}
	if err := r.observeOutcome(ctx, &out.Observed); err != nil {
		return 0, err
	}

	before := instance.DeepCopy()
	status.Compute(out, r.Config.Challenge, now)
	err = r.patchStatus(ctx, before, instance)
	if err == nil {
		r.report(before, out, now)
	}
	if err == nil && busy {
		r.turns.waits(instance)
	}
	if p := out.Problem; p != nil && p.Err != nil {
		err = reconcile.Join(p.Err, err)
	}
	if retried != nil {
		err = reconcile.Join(retried, err)
	}
	return status.Sooner(status.UntilStartDeadline(instance, r.Config.Challenge, r.Clock.Now()), status.UntilRetry(out.Observed, now)), err
}

// getInTurn reads an instance when nobody else works on one of the same owner, and returns
// errBusy when somebody does. Of two instances only one may decide that it goes first, and
// make the namespace; and what is being built when its deletion begins is not finalized
// before that has stopped.
func (r *Reconciler) getInTurn(ctx context.Context, who turn, instance *bergv1.ChallengeInstance) (done func(), err error) {
	key := who.request.NamespacedName
	var before bergv1.ChallengeInstance
	if err := r.Client.Get(ctx, key, &before, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		r.turns.absent(who)
		return nil, outcome.WrapNotFound(err)
	}
	// What was begun comes before what waits.
	done, ok := r.turns.take(before.Spec.OwnerID, who, before.Status.InstanceID != "")
	if !ok {
		return nil, errBusy
	}
	// What was seen before does not count any more.
	if err := r.Client.Get(ctx, key, instance); err != nil {
		done()
		return nil, outcome.WrapNotFound(err)
	}
	return done, nil
}

// giveWay lets starts under way go first. Few workers do so at a time: those that start
// instances must not become fewer when many owners have one that waits.
func (r *Reconciler) giveWay(ctx context.Context) {
	select {
	case r.yields <- struct{}{}:
		defer func() { <-r.yields }()
		r.Starts.GiveWay(ctx, maxYield)
	default:
	}
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, instance *bergv1.ChallengeInstance) error {
	return reconcile.Status[*bergv1.ChallengeInstance]{
		Client: r.Client,
		Of:     func(i *bergv1.ChallengeInstance) any { return &i.Status },
		Rejected: func(i *bergv1.ChallengeInstance, err error) {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, i, bergv1.ReasonRefused, actionObserve,
				redact.Text("The API server refuses the status of this instance: "+err.Error(), i.Spec.Flag))
		},
	}.Patch(ctx, before, instance)
}
