// Package bulk does one thing to many instances: so many at a time, at a pace if wanted, with
// progress, across a connection that is lost, and so that doing it again does only what is
// missing.
package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// Workers are how many requests are under way at a time. More wait in the API server instead of
// here.
const Workers = 24

// Outcome is what became of one.
type Outcome struct {
	// Skipped is why there was nothing to do, "" where something was done.
	Skipped string
	// Already says that an earlier run has done it.
	Already bool
}

// Already is the outcome of what was done before.
var Already = Outcome{Already: true}

// Skip is the outcome of what need not be done.
func Skip(why string) Outcome { return Outcome{Skipped: why} }

// Told is one that was not done, and why.
type Told struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Why       string `json:"why"`
	// Code is the exit code that belongs to a failure, 0 of what was skipped.
	Code int `json:"code,omitempty"`
}

// Report is what a run did.
type Report struct {
	Action  string  `json:"action"`
	ID      string  `json:"id,omitempty"`
	DryRun  bool    `json:"dryRun,omitempty"`
	Total   int     `json:"total"`
	Done    int     `json:"done"`
	Already int     `json:"alreadyDone"`
	Skipped []Told  `json:"skipped,omitempty"`
	Failed  []Told  `json:"failed,omitempty"`
	Seconds float64 `json:"seconds"`
	// Unreached are those that were not tried any more.
	Unreached int `json:"unreached,omitempty"`
}

// Action is what is to be done.
type Action[T client.Object] struct {
	// Verb is what progress shows, as in "extend".
	Verb string
	// Do does it to one. It is called again after an error that may pass, and must see by itself
	// whether it was done meanwhile.
	Do func(ctx context.Context, item T) (Outcome, error)
	// Pace is how many are begun in a second at most, 0 for no limit.
	Pace float64
	// Timeout is for how long to go on without any answer of the API server.
	Timeout time.Duration
	// Workers are how many are done at a time; default Workers.
	Workers int
	// Halt is asked before each, and may wait; an error ends the run. Optional. With more than one
	// worker it is asked for several at a time.
	Halt func(ctx context.Context) error
}

// run is the state of one.
type run[T client.Object] struct {
	Action[T]
	console  *console.Console
	cluster  *cluster.Cluster
	progress *console.Progress

	mu       sync.Mutex
	report   Report
	answered time.Time
	lost     bool
}

// Run does it to all. The error is that of the run: interrupted, or no answer for too long; what
// is wrong with single ones stands in the report.
func Run[T client.Object](ctx context.Context, c *cluster.Cluster, out *console.Console, items []T, a Action[T]) (Report, error) {
	now := c.Clock()
	r := &run[T]{Action: a, console: out, cluster: c, progress: out.Progress(now, a.Verb, len(items)), answered: now.Now()}
	r.report = Report{Action: a.Verb, Total: len(items)}
	began := now.Now()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	limiter := rate.NewLimiter(rate.Inf, 1)
	if a.Pace > 0 {
		limiter = rate.NewLimiter(rate.Limit(a.Pace), 1)
	}
	workers := a.Workers
	if workers <= 0 {
		workers = Workers
	}
	queue := make(chan T)
	var group sync.WaitGroup
	for range min(workers, len(items)) {
		group.Go(func() {
			for item := range queue {
				// Here and not before it is handed over: what was begun before must count.
				if a.Halt != nil && ctx.Err() == nil {
					if err := a.Halt(ctx); err != nil {
						stop(err)
					}
				}
				if ctx.Err() == nil {
					r.one(ctx, item, stop)
				}
			}
		})
	}
feed:
	for _, item := range items {
		if err := limiter.Wait(ctx); err != nil {
			break
		}
		select {
		case queue <- item:
		case <-ctx.Done():
			break feed
		}
	}
	close(queue)
	group.Wait()
	r.progress.Finish()
	r.report.Unreached = len(items) - r.report.Done - r.report.Already - len(r.report.Skipped) - len(r.report.Failed)
	r.report.Seconds = now.Since(began).Seconds()
	if ctx.Err() != nil {
		return r.report, context.Cause(ctx)
	}
	return r.report, nil
}

// one does one, and tries again while it is the connection that fails.
func (r *run[T]) one(ctx context.Context, item T, stop context.CancelCauseFunc) {
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 5 * time.Second}
	for {
		var outcome Outcome
		err := cluster.Attempt(ctx, func(ctx context.Context) (err error) {
			outcome, err = r.Do(ctx, item)
			return err
		})
		switch {
		case ctx.Err() != nil && err != nil:
			return
		case cluster.Transient(err):
			if !r.lostLine(err) {
				stop(console.Errorf(console.ExitUnreachable, "no answer from the API server for %s, given up: %s",
					console.Duration(r.Timeout), console.OneLine(err.Error())))
				return
			}
		case apierrors.IsConflict(err):
			r.found()
		default:
			r.found()
			r.note(item, outcome, err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff.Step()):
		}
	}
}

// lostLine notes that there was no answer, and reports whether to go on.
func (r *run[T]) lostLine(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := r.cluster.Clock().Since(r.answered)
	if !r.lost {
		r.lost = true
		r.progress.Note("no connection, trying again: " + console.OneLine(err.Error()))
	}
	return since < r.Timeout
}

func (r *run[T]) found() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = r.cluster.Clock().Now()
	if r.lost {
		r.lost = false
		r.progress.Note("")
	}
}

func (r *run[T]) note(item T, outcome Outcome, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := Told{Namespace: item.GetNamespace(), Name: item.GetName(), Why: outcome.Skipped}
	switch {
	case apierrors.IsNotFound(err):
		told.Why = "gone"
		r.report.Skipped = append(r.report.Skipped, told)
	case err != nil:
		told.Why, told.Code = console.OneLine(err.Error()), console.Code(cluster.Explain(r.Verb, err))
		r.report.Failed = append(r.report.Failed, told)
	case outcome.Already:
		r.report.Already++
	case outcome.Skipped != "":
		r.report.Skipped = append(r.report.Skipped, told)
	default:
		r.report.Done++
	}
	r.progress.Add(1)
}

// shown is how many of those that were not done are named in text.
const shown = 5

// Show writes a report, and returns the error that decides about the exit code. again is what to
// do when something is missing, done a word such as "extended".
func Show(out *console.Console, r Report, done, again string, err error) error {
	if out.Format == console.JSON {
		if written := out.WriteJSON(r); written != nil {
			return written
		}
	} else {
		text := fmt.Sprintf("%s %d of %d", done, r.Done, r.Total)
		if r.Already > 0 {
			text += fmt.Sprintf(", %d were already", r.Already)
		}
		if len(r.Skipped) > 0 {
			text += fmt.Sprintf(", %d skipped", len(r.Skipped))
		}
		if len(r.Failed) > 0 {
			text += fmt.Sprintf(", %d failed", len(r.Failed))
		}
		if r.Unreached > 0 {
			text += fmt.Sprintf(", %d not tried", r.Unreached)
		}
		out.Printf("%s (%.1fs)\n", text, r.Seconds)
		tell := func(what string, all []Told, colour console.Colour) {
			for i, t := range all {
				if i == shown {
					out.Notef("  … and %d more: -o json names all", len(all)-shown)
					break
				}
				out.Notef("  %s %s/%s: %s", out.PaintErr(colour, what), t.Namespace, t.Name, t.Why)
			}
		}
		tell("skipped", r.Skipped, console.Yellow)
		tell("failed", r.Failed, console.Red)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return console.Errorf(console.ExitInterrupted, "interrupted: %d of %d are not done. %s", r.Unreached+len(r.Failed), r.Total, again)
	case err != nil:
		return &console.Error{Code: code(err), Err: fmt.Errorf("%w. %s", err, again)}
	case len(r.Failed) > 0 && !slices.ContainsFunc(r.Failed, func(t Told) bool { return t.Code != console.ExitForbidden }):
		return console.Errorf(console.ExitForbidden, "you are not allowed to do it to %d of %d: ask the administrator; kubectl berg doctor shows which rights you have", len(r.Failed), r.Total)
	case len(r.Failed) > 0:
		return console.Errorf(console.ExitPartly, "%d of %d failed. %s", len(r.Failed), r.Total, again)
	default:
		return nil
	}
}

func code(err error) int {
	if c := console.Code(err); c != console.ExitFailed {
		return c
	}
	return console.ExitPartly
}
