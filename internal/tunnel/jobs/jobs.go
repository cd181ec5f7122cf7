package jobs

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Runner runs jobs and keeps their results. New returns one. The lock is never held while a job runs.
type Runner struct {
	mu    sync.Mutex
	ctx   context.Context
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	all   map[key]*state
	// slots are per kind, so that jobs that wait for a server that does not answer delay only their own kind.
	slots  map[string]chan struct{}
	limit  int
	limits map[string]int
}

type key struct {
	uid  types.UID
	kind string
}

// state is the state of one kind of job of a custom resource.
type state struct {
	input   string
	attempt int
	cancel  context.CancelFunc
	// running: an attempt was started and has not ended. admitted: it has a slot.
	running, admitted bool
	// result points to the result of the last attempt that ended; nil before.
	result any
	// retryAt is when the next attempt may start; zero if there is none. It is set by the first Do after an attempt.
	decided bool
	retryAt time.Time
}

// New returns a Runner that runs at most limit jobs of a kind at the same time, and of the kinds in limits at most as
// many as these say.
func New(limit int, limits map[string]int) *Runner {
	return &Runner{all: map[key]*state{}, slots: map[string]chan struct{}{}, limit: limit, limits: limits}
}

// slotsFor is called with the lock held.
func (r *Runner) slotsFor(kind string) chan struct{} {
	if r.slots[kind] == nil {
		r.slots[kind] = make(chan struct{}, cmp.Or(r.limits[kind], r.limit))
	}
	return r.slots[kind]
}

// Source connects the Runner to the queue of the controller that waits for results.
func (r *Runner) Source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ctx, r.queue = ctx, queue
		return nil
	})
}

// Job is an operation for Do.
type Job[T any] struct {
	// UID and Name of the custom resource, which is reconciled again when an attempt ends.
	UID  types.UID
	Name string
	// Kind of the job. At most one job of a kind runs for a UID.
	Kind string
	// Input identifies the inputs of a job: with another input the job starts again, after the running attempt has
	// ended.
	Input string
	// Run makes one attempt.
	Run func(context.Context) T
	// Retry returns how long after an attempt the next one starts, zero for never. attempt counts from 1. Nil: never.
	Retry func(result T, attempt int) time.Duration
}

// Result is the state of a job for a reconciliation.
type Result[T any] struct {
	// Value is the result of the last attempt that ended, also while the next one runs; the zero value before.
	Value T
	// Done: Value is for the present input, and no attempt runs.
	Done bool
	// Retrying: another attempt will follow; the custom resource is reconciled again when it is due.
	Retrying bool
}

// Do returns the state of a job, and starts an attempt if one is due. Only reconciliations call it: one
// custom resource is never reconciled twice at the same time, so two calls for the same job cannot
// race.
func Do[T any](r *Runner, job Job[T], now time.Time) Result[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := key{job.UID, job.Kind}
	s := r.all[k]
	if s == nil {
		s = &state{input: job.Input}
		r.all[k] = s
	}
	var last Result[T]
	if s.result != nil {
		last.Value = *s.result.(*T)
	}
	switch {
	case s.running:
		// The result of the last attempt stays visible while the next one runs.
		return last
	case s.input != job.Input:
		// Other inputs invalidate the last result and its retries.
		*s, last = state{input: job.Input}, Result[T]{}
	case s.result != nil:
		if !s.decided {
			// The first call after an attempt decides about a retry, and later calls must not move its time.
			s.decided = true
			if job.Retry != nil {
				if delay := job.Retry(last.Value, s.attempt); delay > 0 {
					s.retryAt = now.Add(delay)
				}
			}
		}
		last.Retrying = !s.retryAt.IsZero()
		if !last.Retrying || now.Before(s.retryAt) {
			if last.Retrying {
				r.enqueue(job.Name, s.retryAt.Sub(now))
			}
			last.Done = true
			return last
		}
	}
	start(r, k, s, job)
	last.Retrying = false
	return last
}

// start is called with the lock held.
func start[T any](r *Runner, k key, s *state, job Job[T]) {
	ctx, cancel := context.WithCancel(r.ctx)
	s.attempt++
	s.running, s.admitted, s.decided, s.retryAt, s.cancel = true, false, false, time.Time{}, cancel
	slots := r.slotsFor(job.Kind)
	go func() {
		defer cancel()
		var got T
		select {
		case slots <- struct{}{}:
			if r.begin(ctx, s) {
				got = job.Run(ctx)
			}
			<-slots
		case <-ctx.Done():
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		s.running = false
		// The job may have been forgotten or replaced while it ran: then its state is in no map any more, and the
		// result is dropped with it.
		if s.admitted {
			s.result = &got
		} else if r.all[k] == s {
			delete(r.all, k) // cancelled before it began: there is no result
		}
		r.enqueue(job.Name, 0)
	}()
}

// begin notes that an attempt has a slot, and reports whether it is still needed.
func (r *Runner) begin(ctx context.Context, s *state) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.admitted = ctx.Err() == nil
	return s.admitted
}

// Withdraw cancels the jobs of a UID that have no slot yet. Jobs that have a slot are completed: a
// half-done call would leave a state that no later step expects.
func (r *Runner) Withdraw(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, s := range r.all {
		if k.uid == uid && s.running && !s.admitted {
			s.cancel()
		}
	}
}

// Busy reports whether any job of a UID runs.
func (r *Runner) Busy(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, s := range r.all {
		if k.uid == uid && s.running {
			return true
		}
	}
	return false
}

// Cancel cancels the context of the job of a kind that runs.
func (r *Runner) Cancel(uid types.UID, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.all[key{uid, kind}]; s != nil && s.running {
		s.cancel()
	}
}

// Forget cancels the jobs of a UID and drops their results.
func (r *Runner) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, s := range r.all {
		if k.uid == uid {
			if s.running {
				s.cancel()
			}
			delete(r.all, k)
		}
	}
}

// Enqueue has a custom resource reconciled after a delay.
func (r *Runner) Enqueue(name string, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enqueue(name, after)
}

// enqueue is called with the lock held. Before the controller starts there is no queue; it then reconciles everything.
func (r *Runner) enqueue(name string, after time.Duration) {
	if r.queue != nil {
		r.queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, after)
	}
}
