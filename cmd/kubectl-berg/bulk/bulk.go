// Package bulk changes many instances: several concurrently, with an optional maximum rate, with progress, and across
// lost connections. A repeated run skips every instance that an earlier run has changed.
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

// Workers is the default number of concurrent requests. More would only wait in the API server.
const Workers = 24

// Outcome is the result for one instance.
type Outcome struct {
	// Skipped is the reason why the instance was skipped, "" if it was not.
	Skipped string
	// Already reports that an earlier run has done it.
	Already bool
}

// Already is the outcome for an instance that an earlier run has changed.
var Already = Outcome{Already: true}

// Skip is the outcome for an instance that cannot be changed.
func Skip(reason string) Outcome { return Outcome{Skipped: reason} }

// Item is an instance that was not changed, and why.
type Item struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Why       string `json:"why"`
	// Code is the exit code of a failure, 0 if the instance was skipped.
	Code int `json:"code,omitempty"`
}

// Report is the result of a run.
type Report struct {
	Action  string  `json:"action"`
	ID      string  `json:"id,omitempty"`
	DryRun  bool    `json:"dryRun,omitempty"`
	Total   int     `json:"total"`
	Done    int     `json:"done"`
	Already int     `json:"alreadyDone"`
	Skipped []Item  `json:"skipped,omitempty"`
	Failed  []Item  `json:"failed,omitempty"`
	Seconds float64 `json:"seconds"`
	// Unreached is the number of instances that were not tried.
	Unreached int `json:"unreached,omitempty"`
}

// Action describes a run.
type Action[T client.Object] struct {
	// Verb names the action in progress messages, as in "extend".
	Verb string
	// Do changes one instance. It is called again after a transient error, and must check whether the
	// earlier call has succeeded.
	Do func(ctx context.Context, item T) (Outcome, error)
	// Pace is the maximum number of calls per second, 0 for no limit.
	Pace float64
	// Timeout limits the time without any answer of the API server.
	Timeout time.Duration
	// Workers is the number of concurrent calls; default Workers.
	Workers int
	// Halt is called before each call of Do, and may block. An error ends the run. Workers call it
	// concurrently. Optional.
	Halt func(ctx context.Context) error
}

// run is the state of a run.
type run[T client.Object] struct {
	Action[T]
	console  *console.Console
	cluster  *cluster.Cluster
	progress *console.Progress

	mu           sync.Mutex
	report       Report
	lastAnswer   time.Time
	disconnected bool
}

// Run changes all items. It returns an error if the whole run ended early: interrupted, or without an answer for too
// long. Errors of single items are in the report.
func Run[T client.Object](ctx context.Context, c *cluster.Cluster, out *console.Console, items []T, a Action[T]) (Report, error) {
	now := c.Clock()
	r := &run[T]{Action: a, console: out, cluster: c, progress: out.Progress(now, a.Verb, len(items)), lastAnswer: now.Now()}
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
	// Without a buffer: an item leaves the list only when a worker is free, so that Pace limits the calls.
	queue := make(chan T)
	var group sync.WaitGroup
	for range min(workers, len(items)) {
		group.Go(func() {
			for item := range queue {
				// Halt comes after the item is received, not before: it must count the items that other workers have
				// started until now.
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

// one changes one item, and retries while the connection fails or the write conflicts. A lost answer may hide a
// success, which is why Do checks for an earlier call.
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
			if !r.noAnswer(err) {
				stop(console.Errorf(console.ExitUnreachable, "gave up: no answer from the API server for %s: %s",
					console.Duration(r.Timeout), console.OneLine(err.Error())))
				return
			}
			// A conflict is an answer, too.
		case apierrors.IsConflict(err):
			r.connected()
		default:
			r.connected()
			r.record(item, outcome, err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff.Step()):
		}
	}
}

// noAnswer records a request without an answer, and reports whether to retry. The time counts from the last answer to
// any worker: a single slow request does not end the run.
func (r *run[T]) noAnswer(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := r.cluster.Clock().Since(r.lastAnswer)
	if !r.disconnected {
		r.disconnected = true
		r.progress.Note("no connection, retrying: " + console.OneLine(err.Error()))
	}
	return since < r.Timeout
}

// connected records an answer of any kind, also a refusal.
func (r *run[T]) connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastAnswer = r.cluster.Clock().Now()
	if r.disconnected {
		r.disconnected = false
		r.progress.Note("")
	}
}

// record counts an item once, with its last result. An instance that no longer exists was skipped, and has not failed.
func (r *run[T]) record(item T, outcome Outcome, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	skipped := Item{Namespace: item.GetNamespace(), Name: item.GetName(), Why: outcome.Skipped}
	switch {
	case apierrors.IsNotFound(err):
		skipped.Why = "gone"
		r.report.Skipped = append(r.report.Skipped, skipped)
	case err != nil:
		skipped.Why, skipped.Code = console.OneLine(err.Error()), console.Code(cluster.Explain(r.Verb, err))
		r.report.Failed = append(r.report.Failed, skipped)
	case outcome.Already:
		r.report.Already++
	case outcome.Skipped != "":
		r.report.Skipped = append(r.report.Skipped, skipped)
	default:
		r.report.Done++
	}
	r.progress.Add(1)
}

// maxShown is the number of skipped and failed items that the text output names.
const maxShown = 5

// Show writes a report, and returns the error that sets the exit code. done is a verb such as
// "extended", hint what to do about the rest.
func Show(out *console.Console, r Report, done, hint string, err error) error {
	if out.Format != console.JSON {
		Print(out, r, done)
	} else if written := out.WriteJSON(r); written != nil {
		return written
	}
	return Error(r, hint, err)
}

// Print writes a report as text. Names of skipped and failed items go to standard error, so that the one line of standard output
// stays the result.
func Print(out *console.Console, r Report, done string) {
	text := fmt.Sprintf("%s %d of %d", done, r.Done, r.Total)
	for _, part := range []struct {
		n     int
		title string
	}{{r.Already, "already done"}, {len(r.Skipped), "skipped"}, {len(r.Failed), "failed"}, {r.Unreached, "not tried"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.title)
		}
	}
	out.Printf("%s (%.1fs)\n", text, r.Seconds)
	list := func(title string, all []Item, colour console.Colour) {
		for _, t := range all[:min(len(all), maxShown)] {
			out.Notef("  %s %s/%s: %s", out.PaintErr(colour, title), t.Namespace, t.Name, t.Why)
		}
		if hidden := len(all) - maxShown; hidden > 0 {
			out.Notef("  … and %d more; -o json lists all", hidden)
		}
	}
	list("skipped", r.Skipped, console.Yellow)
	list("failed", r.Failed, console.Red)
}

// Error returns the error of a run, with the exit code. If all failures are a lack of rights, it says so, with the remedy.
// Skipped items are no failure.
func Error(r Report, hint string, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return console.Errorf(console.ExitInterrupted, "interrupted: %d of %d are not done. %s", r.Unreached+len(r.Failed), r.Total, hint)
	case err != nil:
		return &console.Error{Code: code(err), Err: fmt.Errorf("%w. %s", err, hint)}
	case len(r.Failed) > 0 && !slices.ContainsFunc(r.Failed, func(t Item) bool { return t.Code != console.ExitForbidden }):
		return console.Errorf(console.ExitForbidden, "you are not allowed to change %d of %d. %s", len(r.Failed), r.Total, cluster.Remedy(r.Failed[0].Why))
	case len(r.Failed) > 0:
		return console.Errorf(console.ExitPartly, "%d of %d failed. %s", len(r.Failed), r.Total, hint)
	default:
		return nil
	}
}

// code is ExitPartly for a run that ended early without a code of its own, because some items may be done.
func code(err error) int {
	if c := console.Code(err); c != console.ExitFailed {
		return c
	}
	return console.ExitPartly
}
