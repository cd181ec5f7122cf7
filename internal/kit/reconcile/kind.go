package reconcile

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// The actions of the events that the frame records: the operation in progress.
const (
	actionReconcile = "Reconcile"
	actionDelete    = "Delete"
)

// Kind reconciles the resources T of one Kind, whose status has Conditions and ObservedGeneration. S holds the observations
// and results of one reconciliation.
//
// A reconciliation reads the resource, puts the finalizer on it, and calls Observe, Check, Apply and Status in this order;
// then it writes the status, in one patch and only if the status has changed, and records changes as events. Only what
// must be known before anything is made, such as a name, is persisted earlier, by PatchStatus. A second reconciliation of an unchanged resource writes nothing if Apply writes nothing. A resource that is
// being deleted goes to Finalize instead. Fields without "optional" are required.
type Kind[T client.Object, S any] struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Live reads from the API server: finalizers that the cache does not keep. Optional if there is no finalizer.
	Live    client.Reader
	Events  events.EventRecorder
	Clock   clock.PassiveClock
	Metrics *Metrics

	// Finalizer is persisted before Observe, so that no deletion is missed. Optional: a Kind that owns nothing outside
	// the garbage collector's reach has none.
	Finalizer string
	// FinalizerInApply leaves it to Apply to persist the finalizer, for a Kind that writes labels along with it or owns
	// something only at times.
	FinalizerInApply bool
	// FinalizerCondition is False while the API server refuses the finalizer. Empty: that is an error only.
	FinalizerCondition string

	// Skip reports whether this reconciliation leaves a live resource to another controller. Optional.
	Skip func(obj T, now time.Time) bool
	// Observe reads all that decides what happens to a live resource.
	Observe func(ctx context.Context, obj T) (S, error)
	// Check returns the problems, in the order of the steps that they stop. It is pure. Optional.
	Check func(obj T, s *S) outcome.Problems
	// Apply takes the steps that no problem stops, and adds the problems that it meets. It returns an error only where
	// no status can be computed.
	Apply func(ctx context.Context, obj T, s *S, problems *outcome.Problems) error
	// Status computes the status, all but Ready, Stalled and observedGeneration, and returns Ready. It is pure.
	Status func(obj T, s S, problems outcome.Problems, now time.Time) Ready
	// OlderGeneration has Status compute observedGeneration too, for a Kind whose status may describe an older one.
	OlderGeneration bool
	// Report records changes of the status as events, except problems: before is the resource as it was. It is called
	// after the status was written. Optional.
	Report func(ctx context.Context, before, obj T, s S, problems outcome.Problems, began time.Time)
	// AfterStatus takes the step that must not come before the status, such as a deletion that the status explains. It is
	// called when the status is written, and when the API server refuses it: refused says why. Optional.
	AfterStatus func(ctx context.Context, obj T, s S, problems outcome.Problems, refused error, now time.Time) error
	// RequeueAfter returns after how long time alone changes the outcome, zero for never. Optional.
	RequeueAfter func(obj T, s S, problems outcome.Problems, now time.Time) time.Duration

	// Finalize brings the deletion of a resource that has the finalizer a step further. done: nothing is left that
	// belongs to it, and the frame takes the finalizer off. Optional if there is no finalizer.
	Finalize func(ctx context.Context, obj T, now time.Time) (done bool, requeueAfter time.Duration, err error)
	// Forget drops the state in memory of a resource that no longer exists. Optional.
	Forget func(ctx context.Context, key types.NamespacedName) error

	// Bound cuts texts of a status outside its conditions to lengths that the API server accepts. Optional.
	Bound func(T)
	// Touch writes the time of a status that has changed. Optional.
	Touch func(obj T, now time.Time)
	// Redact returns an error of the same kind without the secrets of a resource: a webhook may repeat the whole object
	// that it refuses. It applies to errors and refusals, not to the messages of problems. Optional.
	Redact func(ctx context.Context, obj T, err error) error

	backoff    *outcome.Backoff
	finalizers finalizer.Remover
}

// Reconciler returns the reconciler of a controller of the Kind. It is to be called once.
func (k *Kind[T, S]) Reconciler() reconcile.Reconciler {
	k.backoff = outcome.NewBackoff()
	return New(k.Clock, k.backoff, k.Metrics, k.reconcile)
}

// reconcile reads the object from the cache, which has the writes of this process. All errors that it returns are redacted.
func (k *Kind[T, S]) reconcile(ctx context.Context, req ctrl.Request) (requeueAfter time.Duration, err error) {
	obj := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	if err := outcome.WrapNotFound(k.Client.Get(ctx, req.NamespacedName, obj)); err != nil {
		if errors.Is(err, outcome.ErrGone) {
			k.finalizers.Forget(req.NamespacedName)
			if k.Forget != nil {
				err = errors.Join(k.Forget(ctx, req.NamespacedName), err)
			}
		}
		return 0, err
	}
	// It comes before everything that can fail, so that the first error of a new resource of this name has the first delay.
	k.backoff.ResetIfReplaced(req, obj.GetUID())
	defer func() { err = k.redact(ctx, obj, err) }()
	now := k.Clock.Now()
	if obj.GetDeletionTimestamp() != nil {
		return k.finalize(ctx, obj, now)
	}
	if k.Skip != nil && k.Skip(obj, now) {
		return 0, nil
	}
	return k.live(ctx, obj, now)
}

// live has one order for all kinds: finalizer, reads, checks, writes of children, status, events. So the status never says that
// something is in place before it was written, and an event follows only a status that was stored.
func (k *Kind[T, S]) live(ctx context.Context, obj T, now time.Time) (requeueAfter time.Duration, err error) {
	// Nothing exists yet. After this line a deletion of the resource waits for Finalize, also if the process is killed at the next
	// one.
	refused, err := k.ensureFinalizer(ctx, obj)
	if err != nil {
		return 0, err
	}
	s, err := k.Observe(ctx, obj)
	if err != nil {
		return 0, err
	}
	var problems outcome.Problems
	if k.Check != nil {
		problems = k.Check(obj, &s)
	}
	problems.Add(refused)
	if err := k.Apply(ctx, obj, &s, &problems); err != nil {
		return 0, err
	}
	// A status from an old view would flicker: it is computed again after the event of the other write.
	if problems.Stale() {
		return 0, outcome.ErrConflict
	}

	// The copy is made here and not at the read: Apply may have persisted fields of the status, and the patch must contain the
	// rest only.
	before := obj.DeepCopyObject().(T)
	ready := k.Status(obj, s, problems, now)
	ready.SetOn(findConditions(obj), obj.GetGeneration(), now)
	if !k.OlderGeneration {
		findStatus(obj).FieldByName("ObservedGeneration").SetInt(obj.GetGeneration())
	}
	if k.RequeueAfter != nil {
		requeueAfter = k.RequeueAfter(obj, s, problems, now)
	}
	// A status that conflicts or cannot be sent reports nothing: events would repeat with the next attempt.
	err = k.PatchStatus(ctx, before, obj, now)
	if err != nil && outcome.Classify(err) != outcome.Rejected {
		return requeueAfter, Join(problems.Err(), err)
	}
	if err == nil {
		k.report(ctx, before, obj, s, problems, now)
	}
	// It runs also if the status was refused, because the refusal repeats and the step would never be taken.
	if k.AfterStatus != nil {
		err = errors.Join(err, k.AfterStatus(ctx, obj, s, problems, err, now))
	}
	return requeueAfter, errors.Join(problems.Err(), err)
}

// report records as events what a written status says for the first time.
func (k *Kind[T, S]) report(ctx context.Context, before, obj T, s S, problems outcome.Problems, now time.Time) {
	all := *findConditions(obj)
	for _, p := range problems {
		if meta.IsStatusConditionFalse(all, p.Condition) && p.Class != outcome.Waiting && p.Class != outcome.InProgress {
			k.Warn(before, obj, p.Condition, p.Reason, actionReconcile, p.Message)
		}
	}
	if k.Report != nil {
		k.Report(ctx, before, obj, s, problems, now)
	}
}

func (k *Kind[T, S]) redact(ctx context.Context, obj T, err error) error {
	if err == nil || k.Redact == nil {
		return err
	}
	return k.Redact(ctx, obj, err)
}

// ensureFinalizer persists the finalizer. A refusal by the API server is a problem, because a deletion would be missed;
// every other failure is an error.
func (k *Kind[T, S]) ensureFinalizer(ctx context.Context, obj T) (*outcome.Problem, error) {
	if k.Finalizer == "" || k.FinalizerInApply {
		return nil, nil
	}
	err := outcome.WrapNotFound(finalizer.Ensure(ctx, k.Client, k.Live, obj, k.Finalizer))
	if err == nil || k.FinalizerCondition == "" || outcome.Classify(err) != outcome.Rejected {
		return nil, err
	}
	return outcome.NewProblem(k.FinalizerCondition, k.redact(ctx, obj, fmt.Errorf("put the finalizer on this %s: %w", kindName(obj), err))), nil
}

// The status is not written at the end: the object is gone with its last finalizer. Finalize writes statuses while it waits.
func (k *Kind[T, S]) finalize(ctx context.Context, obj T, now time.Time) (requeueAfter time.Duration, err error) {
	if k.Finalizer == "" || !controllerutil.ContainsFinalizer(obj, k.Finalizer) || k.finalizers.Done(obj) {
		return 0, nil // another finalizer holds it, or the cache lags behind
	}
	done, requeueAfter, err := k.Finalize(ctx, obj, now)
	if err != nil || !done {
		return requeueAfter, err
	}
	err = k.finalizers.Remove(ctx, k.Client, k.Live, obj, k.Finalizer)
	if outcome.Classify(err) == outcome.Rejected {
		Warning(k.Events, obj, outcome.ReasonRefused, actionDelete, fmt.Sprintf(
			"All that belonged to this %s is gone, but the API server refuses to remove its finalizer: %s", kindName(obj), k.redact(ctx, obj, err)))
	}
	return 0, err
}

// PatchStatus is the only write of a status. An unchanged one costs no request. If the API server refuses the status,
// an event says so, because the status cannot. It may run more than once in a reconciliation, each time with a copy of the
// resource before the change.
func (k *Kind[T, S]) PatchStatus(ctx context.Context, before, obj T, now time.Time) error {
	s := Status[T]{
		Client:  k.Client,
		Pointer: func(obj T) any { return findStatus(obj).Addr().Interface() },
		Bound:   k.Bound,
		Rejected: func(obj T, err error) {
			Warning(k.Events, obj, outcome.ReasonRefused, actionReconcile, fmt.Sprintf("The API server refuses the status of this %s: %s", kindName(obj), k.redact(ctx, obj, err)))
		},
	}
	if k.Touch != nil {
		s.Touch = func(obj T) { k.Touch(obj, now) }
	}
	return s.Patch(ctx, before, obj)
}

// Warn records a warning once: when the condition was not False for this reason before.
func (k *Kind[T, S]) Warn(before, obj T, condition, reason, action, message string) {
	c := metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason}
	if conditions.Transitioned(*findConditions(before), c) {
		Warning(k.Events, obj, reason, action, message)
	}
}

// kindName is the Kind of a resource, as messages call it.
func kindName(obj client.Object) string { return reflect.TypeOf(obj).Elem().Name() }

func findStatus(obj client.Object) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName("Status")
}

func findConditions(obj client.Object) *[]metav1.Condition {
	return findStatus(obj).FieldByName("Conditions").Addr().Interface().(*[]metav1.Condition)
}
