package challenge

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/precedence"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Publisher sends one message and returns when the broker has acknowledged it, or why not.
type Publisher interface {
	// Publish sends value under key to the topic of transitions. It returns within the sender's own deadline, whatever the broker does.
	Publish(ctx context.Context, key string, value []byte) error
}

// Reconciler makes, watches and ends challenges.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Writer writes everything that belongs to a challenge.
	Writer apply.Writer
	// Starts are the first passes of new challenges under way: others let them go first.
	Starts *precedence.Precedence
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.HexaCTF
	// Workers is how many challenges are worked on at the same time.
	Workers int
	// Publisher sends messages. Nil: there are none.
	Publisher Publisher
	// Reason makes what Publisher failed at fit for a condition.
	Reason func(error) string

	backoff    *outcome.Backoff
	deliveries deliveries
	// ends are the deletions of challenges whose time is over: what follows of them goes after.
	ends precedence.Precedence
	// live and ending take requests to the queues of the controllers of live challenges and of
	// those that are being deleted.
	live, ending calls
}

// The finalizers right lets a challenge own objects where the API server asks for it.
//
// +kubebuilder:rbac:groups=apps.hexactf.io,resources=challenges,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=apps.hexactf.io,resources=challenges/status,verbs=patch
// +kubebuilder:rbac:groups=apps.hexactf.io,resources=challenges/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps.hexactf.io,resources=challengedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reconcile brings one live challenge a step further, or leaves it alone when there is nothing
// to do. It returns after how long time alone will change something, zero for never.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (again time.Duration, err error) {
	c := &hexactfv1.Challenge{}
	if err := outcome.WrapNotFound(r.Client.Get(ctx, req.NamespacedName, c)); err != nil {
		return 0, err
	}
	r.backoff.ResetIfReplaced(req, c.UID)
	now := r.Clock.Now()
	if c.DeletionTimestamp != nil || over(c, now) {
		return 0, nil // the controllers of deletions and of expiries end it
	}
	if c.Status.StartedAt == nil {
		defer r.Starts.Take()()
	}
	if err := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, c, hexactfv1.Finalizer)); err != nil {
		return 0, err
	}
	if inherited(c) {
		return 0, r.inherit(ctx, c, now)
	}
	o, err := r.observe(ctx, c)
	if err != nil {
		return 0, err
	}
	out := Outcome{Problem: check(o)}
	if out.Problem == nil {
		if err := r.start(ctx, &o, now); err != nil {
			return 0, err
		}
		out.Endpoint, out.Problem = r.build(ctx, o)
	}
	if out.Problem != nil && out.Problem.Class == outcome.Stale {
		return 0, outcome.ErrConflict
	}
	if err := r.observeOutcome(ctx, &o); err != nil {
		return 0, err
	}

	before := c.DeepCopy()
	out.Observed, out.Delivery = o, r.deliveries.of(c)
	computeStatus(out, r.Config, now)
	if again := unremarkable(before, out, now); again > 0 {
		return again, nil
	}
	err = r.patchStatus(ctx, before, c)
	if err == nil {
		r.report(before, out, now)
	}
	// A status that is refused keeps nobody: it was told by an event.
	if (err == nil || outcome.CauseOf(err) == outcome.Rejected) && terminal(c, out.Problem, r.Config.DefinitionTimeout, now) {
		return 0, r.giveUp(ctx, c, out.Problem)
	}
	if p := out.Problem; p != nil && p.Err != nil {
		err = reconcile.Join(p.Err, err)
	}
	return requeueAfter(out, r.Config, now), err
}

// giveUp asks for the deletion of a challenge that nothing will ever come of. Its state says
// why, and the platform is told, before it is gone.
func (r *Reconciler) giveUp(ctx context.Context, c *hexactfv1.Challenge, why *outcome.Problem) error {
	if err := outcome.WrapNotFound(apply.Delete(ctx, r.Client, c)); err != nil {
		return err
	}
	reconcile.Warning(r.Events, c, hexactfv1.ReasonTerminating, actionDelete, "The challenge can never run and is deleted: "+why.Message)
	return nil
}

// inherit takes over a challenge that another operator has started: it runs on, untouched,
// expires, and its end is told. What it should consist of is not known.
func (r *Reconciler) inherit(ctx context.Context, c *hexactfv1.Challenge, now time.Time) error {
	before := c.DeepCopy()
	if c.Status.RunningAt == nil {
		definition := &hexactfv1.ChallengeDefinition{}
		definition.Namespace, definition.Name = c.Namespace, c.Spec.Definition
		exists, err := apply.Find(ctx, r.Writer, definition)
		if err != nil {
			return err
		}
		if !exists {
			definition = nil
		}
		limit(&c.Status, definition)
	}
	computeInherited(c, r.deliveries.of(c), now)
	return r.patchStatus(ctx, before, c)
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, c *hexactfv1.Challenge) error {
	gone := dropped(&before.Status, &c.Status, r.deliveries.of(c).Acknowledged)
	err := reconcile.Status[*hexactfv1.Challenge]{
		Client: r.Client,
		Of:     func(c *hexactfv1.Challenge) any { return &c.Status },
		Rejected: func(c *hexactfv1.Challenge, err error) {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, c, hexactfv1.ReasonRefused, actionObserve, "The API server refuses the status of this Challenge: "+err.Error())
		},
	}.Patch(ctx, before, c)
	if err == nil && gone > 0 {
		lost.Add(float64(gone))
		reconcile.Warning(r.Events, c, hexactfv1.ReasonMessagesLost, actionObserve,
			fmt.Sprintf("More than %d messages wait for the broker: %d of them, neither the first nor the last ones, are given up", maxOutbox, gone))
	}
	return err
}
