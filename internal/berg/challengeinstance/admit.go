package challengeinstance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/admission"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/berg/revisions"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

const (
	// maxStarts is the number of instances that one round starts, and startWriters how many of them concurrently. The round
	// has already decided which instances start, so the order of the writes does not matter.
	maxStarts, startWriters = 20, 10
	// maxReports is the number of statuses that a round without starts writes, one after another. Then the next round
	// begins, so that a start never waits behind hundreds of writes.
	maxReports = 5
	// deferral is the time until the cache shows why a prepared instance cannot be taken over.
	deferral = 100 * time.Millisecond
)

// admitter decides which instances start. It is one worker with one request: each round lists the instances that were not
// started, decides about all of them, and writes. Two concurrent rounds could both give away the last slot of a limit. Its
// client's lists wait until the cache shows its own writes. Until an instance is started only the admitter writes its
// status, afterwards only the Reconciler.
type admitter struct {
	*Reconciler
	// frame writes statuses with the client of this worker, whose lists wait for them.
	frame   *kind
	backoff *outcome.Backoff
	// synced: the cache shows every start. It may lack starts of the previous leader, and a start whose answer was lost.
	// Until it has caught up, decisions follow from a list of the API server.
	synced bool
	// delays has the delays of pending instances whose last write failed.
	delays map[types.UID]delay
}

// delay says until when an instance is not written again. The instance keeps its position in the queue. If the API server
// refuses it, it holds up no other instance during that time. The delay is a time and not a sleep: the round goes on with the
// other instances, and returns the earliest delay as the time of the next round.
type delay struct {
	request ctrl.Request
	until   time.Time
	refused bool
	// problem is the refusal as the status reports it, nil if the status reports none.
	problem *outcome.Problem
}

// setup adds the controller. All watches enqueue the same request, so any number of events during a round leads to one more
// round.
func (a *admitter) setup(mgr ctrl.Manager) error {
	a.frame = a.newKind()
	a.frame.Client = a.Starts
	a.backoff = outcome.NewBackoff()
	a.delays = map[types.UID]delay{}
	request := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
	})
	controllers := ctrl.NewControllerManagedBy(mgr).
		Named("challengeinstance-admission").
		Watches(&bergv1.ChallengeInstance{}, request, builder.WithPredicates(admissionChanged)).
		Watches(&bergv1.Challenge{}, request, builder.WithPredicates(challengeChanged)).
		Watches(&corev1.Namespace{}, request, builder.WithPredicates(ofInstances, holderChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: reconcile.Timeout})
	if nodes.Watched(a.Config.Challenge) {
		controllers = controllers.Watches(&corev1.Node{}, request, builder.WithPredicates(nodes.Changed))
	}
	return controllers.Complete(reconcile.New(a.Clock, a.backoff, reconcileMetrics, a.reconcile))
}

// admissionChanged passes the events of instances after which another decision may be due.
var admissionChanged = predicate.Funcs{
	// After a restart each instance is a creation. The started ones lead to no round by themselves.
	CreateFunc: func(e event.CreateEvent) bool { return !isStarted(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return changes.Update(e) || finalizerRemoved.Update(e) || isStarted(e.ObjectOld) && !isStarted(e.ObjectNew)
	},
}

// holderChanged passes the events of namespaces after which another instance may be the first of its owner. The creation of
// a namespace by this operator is not among them. The round that started the instance has already decided, and a namespace that
// the operator makes for it changes no decision.
var holderChanged = predicate.And(identityChanged, predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetLabels()[bergv1.LabelManagedBy] != bergv1.ManagedBy },
})

// finalizerRemoved passes the removal of the finalizer by another client: the next round puts it back.
var finalizerRemoved = finalizer.TakenOff(bergv1.Finalizer)

// isStarted reports whether an instance counts against limits: from its start until its finalizer is removed. By then none
// of its objects exist.
func isStarted(o client.Object) bool {
	i := o.(*bergv1.ChallengeInstance)
	return i.Status.InstanceID != "" && (isLive(i) || controllerutil.ContainsFinalizer(i, bergv1.Finalizer))
}

// reconcile is one round. It returns the delay until the next round, zero if only events lead to one.
func (a *admitter) reconcile(ctx context.Context, _ ctrl.Request) (requeueAfter time.Duration, err error) {
	pending, listStarted, err := a.list(ctx)
	if err != nil || len(pending) == 0 {
		return 0, err
	}
	now := a.Clock.Now()
	r, err := a.observeRound(ctx, pending, listStarted, now)
	if err != nil {
		return 0, err
	}
	due, remaining := r.writes(a.Config.Challenge)
	// Reports are written one after another: they leave the API server to the objects of started instances.
	writers := 1
	if len(due) > 0 && due[0].problem == nil {
		writers = startWriters
	}
	// It waits for all writers: settle and the next round see the results of every write of this one.
	workqueue.ParallelizeUntil(ctx, writers, len(due), func(n int) { a.write(ctx, due[n], now) })
	return a.settle(ctx, due, remaining, now), errors.Join(a.displace(ctx, r.all), a.drain(ctx, r))
}

// displace ends the instances of other namespaces that keep an instance of the platform waiting. Their end leads to the next round.
func (a *admitter) displace(ctx context.Context, all []admission.Instance) error {
	var errs []error
	for _, i := range admission.Displaced(all) {
		instance := &bergv1.ChallengeInstance{}
		err := a.Client.Get(ctx, i.Key, instance)
		// The list may be older than an end and a new creation under the same name. The deletion carries the UID that was read
		// here.
		if err == nil && instance.UID == i.UID && isLive(instance) {
			if err = a.terminate(ctx, instance, bergv1.TerminationAdmin); err == nil {
				reconcile.Warning(a.Events, instance, bergv1.ReasonOwnerBusy, actionTerminate,
					"An instance of the platform's namespace has the same spec.ownerId: this one ends. Use another spec.ownerId")
			}
		}
		errs = append(errs, apply.IgnoreAbsent(err))
	}
	return errors.Join(errs...)
}

// write is the write of one instance in a round: its start, or the problem that prevents the start.
type write struct {
	status.Candidate
	// problem is nil for a start.
	problem *outcome.Problem
	// takes names the prepared instance that it takes over; empty for none.
	takes types.NamespacedName
	// limited: there is a limit, and it lets the instance start.
	limited bool

	// done: the write was tried. err is its failure, and refused the refusal as the status reports it.
	done    bool
	err     error
	refused *outcome.Problem
	// deferred: its prepared instance is gone, and a limit may leave no other slot. The next round decides again.
	deferred bool
	// sent: the start was sent to the API server.
	sent bool
}

// writes returns the writes of this round, which are starts if any instance may start, and whether more writes remain.
func (r *round) writes(cfg config.Challenge) (due []*write, remaining bool) {
	var starts, reports []*write
	// A report that the status already has is no write: a round that changes nothing writes nothing.
	report := func(uid types.UID, p *outcome.Problem) {
		c := r.candidates[uid]
		if p == nil || r.delayed.Has(uid) {
			return
		}
		if !status.Reports(c.Instance, p) || !controllerutil.ContainsFinalizer(c.Instance, bergv1.Finalizer) {
			reports = append(reports, &write{Candidate: c, problem: p})
		}
	}
	for _, i := range r.all {
		if !i.Started && !i.Ending {
			report(i.UID, r.problems[i.UID])
		}
	}
	r.decisions = admission.Decide(r.all, r.rules)
	for _, d := range r.decisions {
		// It keeps its slot until its last write is tried again, so that no younger instance overtakes it.
		if d.Reason == admission.Start && r.delayed.Has(d.UID) {
			continue
		}
		if d.Reason == admission.Start {
			starts = append(starts, &write{Candidate: r.candidates[d.UID], takes: d.TakesOver, limited: r.rules.Limit(d.Instance)})
		} else {
			report(d.UID, status.WaitProblem(d, cfg))
		}
	}
	due = starts[:min(len(starts), maxStarts)]
	if len(starts) == 0 {
		due = reports[:min(len(reports), maxReports)]
	}
	return due, len(due) < len(starts)+len(reports)
}

// write starts an instance, or writes why it does not start. An instance that only waits has the finalizer too, so that a
// watch shows it as Terminated before it is gone.
func (a *admitter) write(ctx context.Context, w *write, now time.Time) {
	w.done = true
	w.Instance = w.Instance.DeepCopy()
	// The order is the finalizer, the content, then the start. After the start objects may exist, and a deletion without a
	// finalizer would leave them behind.
	if err := outcome.WrapNotFound(finalizer.Ensure(ctx, a.Starts, a.Live, w.Instance, bergv1.Finalizer)); err != nil {
		err = redact.Error(err, w.Instance.Spec.Flag)
		// Only a refusal is worth a status: it repeats until a person acts. Other failures are tried again soon.
		if outcome.Classify(err) != outcome.Rejected {
			w.err = err
			return
		}
		w.err = err
		if w.problem == nil { // without it a deletion would be missed
			w.refused = status.NewProblem(bergv1.ConditionNamespaceCreated, fmt.Errorf("put a finalizer on the instance: %w", err), w.Instance.Spec.Flag)
			w.problem = w.refused
		}
	}
	before := w.Instance.DeepCopy()
	out := status.Outcome{Observed: status.Observed{Candidate: w.Candidate, Limited: w.limited}, Problem: w.problem}
	cfg := w.Nodes.Apply(a.Config.Challenge)
	if w.problem == nil && !a.start(ctx, w, &out, cfg, now) {
		return
	}
	// ID, token digest, name of the content and phase are one patch: an instance either has all of them or was not started.
	status.Compute(out, cfg, now).SetOn(&w.Instance.Status.Conditions, w.Instance.Generation, now)
	if err := a.frame.PatchStatus(ctx, before, w.Instance, now); err != nil {
		w.err = reconcile.Join(w.err, redact.Error(err, w.Instance.Spec.Flag))
		return
	}
	if w.problem == nil {
		a.reportStarted(w.Instance)
		return
	}
	a.report(before, out, nil, now)
}

// start prepares the status of a start, or the problem that prevents it. It returns false if there is nothing to report. An
// instance takes over a prepared one, or gets an identity and a content of its own. The content is stored before the status names
// it. If this process ends in between, no instance names the Secret, and a later sweep deletes it.
func (a *admitter) start(ctx context.Context, w *write, out *status.Outcome, cfg config.Challenge, now time.Time) bool {
	taken, err := a.takeOver(ctx, w, out, cfg, now)
	if taken || w.deferred {
		return taken
	}
	var id uuid.UUID
	if err == nil {
		id, err = uuid.NewV7()
	}
	if err == nil {
		out.Adopted, err = a.store(ctx, out.Observed, cfg)
	}
	if err != nil {
		w.err = fmt.Errorf("start instance %s: %w", client.ObjectKeyFromObject(w.Instance), redact.Error(err, w.Instance.Spec.Flag))
		w.refused = status.NewProblem(bergv1.ConditionNamespaceCreated, err, w.Instance.Spec.Flag)
		w.problem, out.Problem = w.refused, w.refused
		return w.refused.Class != outcome.Stale
	}
	// The digest of the namespace token is in the status before the namespace exists. Another client cannot know the
	// token, so a namespace that it creates first is not taken for the instance's own.
	status.Identify(w.Instance, status.Identity{ID: id, Seed: rand.Text(), NamespaceTokenHash: a.tokens.Draw()}, now)
	if w.Prepared {
		w.Instance.Status.StartedAt = nil // its time starts when a player gets it
	}
	out.Problem, w.sent = status.BeingBuilt, true
	return true
}

// takeOver gives an instance a prepared one. It returns false if there is none, or it cannot be taken over any more. The prepared
// one has a slot for the instance, so that without it the limits decide again.
func (a *admitter) takeOver(ctx context.Context, w *write, out *status.Outcome, cfg config.Challenge, now time.Time) (taken bool, err error) {
	if w.takes.Name == "" {
		return false, nil
	}
	prepared, adopted, err := a.claim(ctx, w, cfg, now)
	if prepared == nil {
		w.deferred = err == nil && w.limited
		return false, err
	}
	status.TakeOver(w.Instance, prepared, now)
	out.Adopted, out.Problem, w.sent = adopted, status.TakingOver, true
	return true, nil
}

// claim makes sure that an instance alone takes over a prepared one, and returns it with its content. It returns nil if that
// cannot be taken over any more: then the instance starts without it.
func (a *admitter) claim(ctx context.Context, w *write, cfg config.Challenge, now time.Time) (*bergv1.ChallengeInstance, *status.Adoption, error) {
	prepared := &bergv1.ChallengeInstance{}
	if err := a.Starts.Get(ctx, w.takes, prepared); err != nil {
		return nil, nil, apply.IgnoreAbsent(err)
	}
	claim := &bergv1.InstanceReference{Namespace: w.Instance.Namespace, Name: w.Instance.Name, UID: w.Instance.UID}
	claimed := prepared.Status.ClaimedBy != nil
	if claimed && *prepared.Status.ClaimedBy != *claim || !claimed && !status.Claimable(prepared) {
		return nil, nil, nil
	}
	content, err := a.Revisions.Read(ctx, prepared.Status.ChallengeRevision)
	if unreadable := (*revisions.UnreadableError)(nil); errors.As(err, &unreadable) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	// A claim that this round finds was written by an earlier round, whose start failed or was killed. It is not checked again:
	// the prepared instance can go to no other one.
	if !claimed {
		// The pool is checked by events, and may be a moment behind an edit of the Challenge. A player must not get the old
		// content.
		if !content.Equals(manifests.NewSnapshot(w.Challenge, cfg)) {
			return nil, nil, nil
		}
		before := prepared.DeepCopy()
		prepared.Status.ClaimedBy = claim
		// The patch carries the version in which nothing had claimed it. If the answer is lost, the next round reads the claim.
		if err := a.frame.PatchStatus(ctx, before, prepared, now); err != nil {
			return nil, nil, fmt.Errorf("claim the prepared instance %s: %w", w.takes, err)
		}
	}
	return prepared, &status.Adoption{Snapshot: *content, Revision: prepared.Status.ChallengeRevision}, nil
}

// drain deletes the prepared instances whose slots players wait for. Their end leads to the next round.
func (a *admitter) drain(ctx context.Context, r round) error {
	var errs []error
	for _, i := range admission.Drained(r.all, r.decisions) {
		prepared := &bergv1.ChallengeInstance{}
		err := a.Starts.Get(ctx, i.Key, prepared)
		// A claim of this round is already in the cache that Starts waits for, so a prepared instance that a start of this round
		// took is not ended.
		if err == nil && prepared.UID == i.UID && isLive(prepared) && prepared.Status.ClaimedBy == nil {
			err = apply.DeleteUnchanged(ctx, a.Client, prepared)
		}
		if !apierrors.IsConflict(err) { // an instance may have claimed it
			errs = append(errs, apply.IgnoreAbsent(err))
		}
	}
	return errors.Join(errs...)
}

// settle records the results of the writes of a round, and returns the delay until the next round.
func (a *admitter) settle(ctx context.Context, tried []*write, remaining bool, now time.Time) (requeueAfter time.Duration) {
	for _, w := range tried {
		if !w.done { // the time of the round is over
			remaining = true
			continue
		}
		request, uid := newRequest(w.Instance), w.Instance.UID
		a.backoff.ResetIfReplaced(request, uid)
		delete(a.delays, uid)
		if w.deferred {
			a.delays[uid] = delay{request: request, until: now.Add(deferral)}
			continue
		}
		if w.err != nil {
			w.err = fmt.Errorf("instance %s: %w", request, w.err)
		}
		result, failed := a.backoff.Result(ctx, request, 0, w.err)
		if failed == nil { // after a conflict the cache will show the other client's write
			requeueAfter = status.Sooner(requeueAfter, result.RequeueAfter)
			continue
		}
		reconcileMetrics.Failed()
		cause := outcome.Classify(failed)
		if w.sent && cause == outcome.Failed {
			a.synced = false // without an answer, the API server may have stored the start
		}
		a.delays[uid] = delay{request: request, until: now.Add(result.RequeueAfter), refused: cause == outcome.Rejected, problem: w.refused}
	}
	for _, p := range a.delays {
		requeueAfter = status.Sooner(requeueAfter, max(immediately, p.until.Sub(now)))
	}
	if remaining {
		requeueAfter = immediately
	}
	return requeueAfter
}
