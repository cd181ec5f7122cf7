package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler makes ChallengeChecks.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Live reads from the API server: the pull secret, and routes when players cannot get through.
	Live client.Reader
	// Writer writes the namespace of a solver and its policies.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.Berg
	// Policies returns the kinds of policy that instances are given now.
	Policies func(context.Context) config.NetworkPolicy
	// Namespace is that of the operator, where the pull secret is.
	Namespace string

	backoff    *outcome.Backoff
	tokens     ownership.Secrets
	finalizers finalizer.Remover
	// What follows is of the one worker.
	refusals refusals
	builds   refusedBuilds
	// named is the instance that the status last named as waiting for room.
	named types.NamespacedName
	// others brings an event when those that wait may begin.
	queueChanged chan event.GenericEvent
}

// These rights are in a role of their own: berg-check. What a check does in addition (namespaces,
// network policies, the copy of the pull secret, deleting its instance) instances need too.
//
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengechecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengechecks/status,verbs=patch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances,verbs=create;get
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=create;list;watch

// reconcile brings one ChallengeCheck a step further. It returns after how long time alone will
// change something, zero for never.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (requeueAfter time.Duration, err error) {
	c := &bergv1.ChallengeCheck{}
	if err := outcome.WrapNotFound(r.Client.Get(ctx, req.NamespacedName, c)); err != nil {
		if errors.Is(err, outcome.ErrGone) {
			r.finalizers.Forget(req.NamespacedName)
		}
		return 0, err
	}
	r.backoff.ResetIfReplaced(req, c.UID)
	now := r.Clock.Now()
	o, err := r.observe(ctx, c, now)
	if err != nil {
		return 0, err
	}
	switch {
	case c.DeletionTimestamp != nil:
		r.builds.forget(c)
		return r.finalize(ctx, o, now)
	case c.Status.Run == nil:
		return r.idle(ctx, o, now)
	case c.Status.Run.FinishedAt == nil:
		return r.run(ctx, o, now)
	default:
		return r.cleanUp(ctx, o, now)
	}
}

// idle begins a check if one is due and may begin, and else says why not.
func (r *Reconciler) idle(ctx context.Context, o Observed, now time.Time) (time.Duration, error) {
	reason, message := waiting(o, r.Config.Check.Concurrency, now)
	before := o.Check.DeepCopy()
	if reason != "" {
		// It was killed between the finalizer and the status, or between both at the end.
		if err := r.release(ctx, o.Check); err != nil {
			return 0, err
		}
		before.SetResourceVersion(o.Check.GetResourceVersion())
		computeIdle(o, reason, message, now)
		return untilNext(o, reason, now), r.patchStatus(ctx, before, o.Check)
	}
	if err := r.begin(ctx, o, now); err != nil {
		if refused(err) {
			r.refusals.note(o.Check, now)
			r.enqueueOthers()
		}
		return 0, err
	}
	if err := r.observeRun(ctx, &o); err != nil {
		return 0, err
	}
	return r.run(ctx, o, now)
}

// begin notes that a check is being made, before anything of it exists.
func (r *Reconciler) begin(ctx context.Context, o Observed, now time.Time) error {
	before := o.Check.DeepCopy()
	if err := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, o.Check, bergv1.CheckFinalizer)); err != nil {
		if outcome.Classify(err) == outcome.Rejected {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, before, bergv1.ReasonRefused, actionCheck, "The API server refuses the finalizer of this ChallengeCheck: "+r.withoutFlag(err, o).Error())
		}
		return err
	}
	before = o.Check.DeepCopy()
	computeStarted(o, r.tokens.Draw(), now)
	return r.patchStatus(ctx, before, o.Check)
}

// enqueueOthers enqueues the checks that wait: one that came before them no longer does.
func (r *Reconciler) enqueueOthers() {
	select {
	case r.queueChanged <- event.GenericEvent{Object: &bergv1.ChallengeCheck{}}:
	default: // they are being enqueued
	}
}

// untilNext is how long it is until a check that waits may begin, if nothing else happens; zero if
// time alone changes nothing.
func untilNext(o Observed, reason string, now time.Time) time.Duration {
	dueTime := due(o.Check, o.Challenge)
	switch {
	case reason == bergv1.CheckReasonPlayersFirst:
		dueTime = o.Players.Until
	case reason == bergv1.CheckReasonQueued && !o.RefusedUntil.IsZero():
		dueTime = o.RefusedUntil
	}
	if dueTime.IsZero() {
		return 0
	}
	return max(0, dueTime.Sub(now))
}

// run brings a check that is being made a step further.
func (r *Reconciler) run(ctx context.Context, o Observed, now time.Time) (time.Duration, error) {
	// Another client may have removed it.
	if err := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, o.Check, bergv1.CheckFinalizer)); err != nil {
		return 0, err
	}
	var v Assessment
	switch {
	case o.Conflicting != "":
		v = failed(bergv1.CheckRefused, o.Conflicting+" exists and belongs to another owner; it was left untouched: delete or rename it")
	case o.Challenge == nil:
		v = brokenOff("The Challenge was deleted")
	default:
		v = assess(o, now)
		if v.unreached() {
			v.add(r.routeProblems(ctx, o.Instance))
		}
	}
	var failure error
	if v.Result == nil && v.BrokenOff == "" {
		if failure = r.build(ctx, &o); r.builds.over(o.Check, failure, now) {
			v = failed(bergv1.CheckRefused, "The API server refuses the objects of the check: "+r.withoutFlag(failure, o).Error())
			failure = nil
		}
	}
	before := o.Check.DeepCopy()
	computeRunning(o, v, now)
	if err := r.patchStatus(ctx, before, o.Check); err != nil {
		return 0, reconcile.Join(r.withoutFlag(failure, o), err)
	}
	r.report(before, o.Check, v)
	if o.Check.Status.Run.FinishedAt != nil {
		return r.cleanUp(ctx, o, now)
	}
	return v.Left, r.withoutFlag(failure, o)
}

// build creates what the check needs next: the instance, and when it is Running the solver.
func (r *Reconciler) build(ctx context.Context, o *Observed) error {
	switch {
	case o.Instance == nil:
		return r.create(ctx, instance(o.Check, newFlag(o.Challenge)))
	case o.Instance.Status.ReadyAt == nil || o.Job != nil:
		return nil // its event comes
	}
	in := Inputs{Check: o.Check, Challenge: o.Challenge, Instance: o.Instance, Way: wayTo(o.Instance, o.Challenge), Config: r.Config}
	in.Config.Challenge.NetworkPolicy = r.Policies(ctx)
	if err := r.applyNamespace(ctx, o); err != nil {
		return err
	}
	// Nothing runs before what confines it is there.
	for _, p := range policies(in) {
		if err := r.confine(ctx, o.Check, p); err != nil {
			return err
		}
	}
	if err := r.copyPullSecret(ctx, o.Check); err != nil {
		return err
	}
	return r.create(ctx, job(in))
}

// applyNamespace makes sure that the namespace can be proved before it is created.
func (r *Reconciler) applyNamespace(ctx context.Context, o *Observed) error {
	owner := func() ownership.Owner {
		owner, s := namespaceOwner(o.Check), &o.Check.Status
		if owner.Token != nil {
			owner.Token = r.tokens.Token(s.NamespaceUID, s.NamespaceTokenDigest)
		}
		return owner
	}
	if _, err := apply.PrepareNamespace(ctx, r.Writer, owner(), o.Namespace, namespaceName(o.Check), func() error {
		before := o.Check.DeepCopy()
		o.Check.Status.NamespaceUID, o.Check.Status.NamespaceTokenDigest = "", r.tokens.Draw()
		return r.patchStatus(ctx, before, o.Check)
	}); err != nil {
		return err
	}
	ns, err := apply.Apply(ctx, r.once(), owner(), checkNamespace(o.Check))
	if err == nil {
		o.Namespace = ns
	}
	return err
}

func (r *Reconciler) confine(ctx context.Context, c *bergv1.ChallengeCheck, policy client.Object) (err error) {
	switch p := policy.(type) {
	case *networkingv1.NetworkPolicy:
		_, err = apply.Apply(ctx, r.once(), ownerFor(c), p)
	case *ciliumv2.CiliumNetworkPolicy:
		_, err = apply.Apply(ctx, r.once(), ownerFor(c), p)
	}
	return err
}

// once is a Writer that nothing holds back. Every check makes what has been deleted after the one
// before, under the same names and for the same ChallengeCheck, which looks like a fight; and
// no reconciliation repairs it, once the solver runs.
func (r *Reconciler) once() apply.Writer {
	w := r.Writer
	w.DriftBackoff = nil
	return w
}

// create makes an object that is never changed. If there is one of its name the cache will show
// it, and the next reconciliation whose it is.
func (r *Reconciler) create(ctx context.Context, o client.Object) error {
	err := r.Client.Create(ctx, o, client.FieldOwner(r.Writer.Manager))
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: %w", outcome.ErrConflict, err)
	}
	return err
}

// copyPullSecret copies the operator's pull secret. A missing one is no reason to stop: the
// image may be public, and instances report it.
func (r *Reconciler) copyPullSecret(ctx context.Context, c *bergv1.ChallengeCheck) error {
	name := r.Config.Challenge.PullSecretName
	if name == "" {
		return nil
	}
	source := &corev1.Secret{}
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, source); err != nil {
		if apply.Absent(err) {
			return nil
		}
		return fmt.Errorf("read the pull secret: %w", err)
	}
	// The operator keeps no cache of Secrets that could wait for this write.
	err := r.Client.Create(ctx, pullSecret(c, source), client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("copy the pull secret: %w", err)
	}
	return nil
}

// refused reports whether the API server, or what is there already, stands against a write.
func refused(err error) bool {
	switch outcome.Classify(err) {
	case outcome.Rejected, outcome.NotOwned:
		return err != nil
	default:
		return false
	}
}

// cleanUp deletes the objects of a check, and makes the ChallengeCheck idle when all of them are gone.
func (r *Reconciler) cleanUp(ctx context.Context, o Observed, now time.Time) (requeueAfter time.Duration, err error) {
	gone, requeueAfter, err := r.end(ctx, o, now)
	if err != nil {
		return 0, err
	}
	before := o.Check.DeepCopy()
	if !gone {
		computeEnding(o, now)
		return requeueAfter, r.patchStatus(ctx, before, o.Check)
	}
	if err := r.release(ctx, o.Check); err != nil {
		return 0, err
	}
	before = o.Check.DeepCopy()
	o.Check.Status.Run, o.Check.Status.NamespaceUID, o.Check.Status.NamespaceTokenDigest = nil, "", ""
	reason, message := obstacle(o.Check, o.Challenge, now)
	if reason == "" {
		reason, message = bergv1.CheckReasonQueued, "A check is due"
	}
	computeIdle(o, reason, message, now)
	return 0, r.patchStatus(ctx, before, o.Check)
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, c *bergv1.ChallengeCheck) error {
	return reconcile.Status[*bergv1.ChallengeCheck]{
		Client:  r.Client,
		Pointer: func(c *bergv1.ChallengeCheck) any { return &c.Status },
		Rejected: func(c *bergv1.ChallengeCheck, err error) {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, c, bergv1.ReasonRefused, actionCheck, "The API server refuses the status of this ChallengeCheck: "+err.Error())
		},
	}.Patch(ctx, before, c)
}
