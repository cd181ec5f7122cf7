package deployment

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// build creates the objects of a run, cancels runs that are no longer wanted, and returns the
// problem that stopped it. The Pipeline is brought up to date at each reconciliation, also while a run is under way: what a run
// must keep is in its parameters.
func (r *Reconciler) build(ctx context.Context, o *Observed, in Inputs) (started bool, _ *outcome.Problem) {
	d := o.Deployment
	if _, err := apply.Apply(ctx, r.Writer, ownerFor(d), pipeline(in)); err != nil {
		return false, r.writeProblem(ctx, kibashipv1.ConditionPipelineAvailable, err)
	}
	current := o.find(in.runName())
	starts := in.Adopted == nil && due(*o, in.runName())
	if starts || current != nil && !current.over() && !current.Executed {
		if err := r.observeMissing(ctx, o, in); err != nil {
			return false, r.writeProblem(ctx, kibashipv1.ConditionSucceeded, err)
		}
		if missing := checkMissing(*o); missing != nil {
			return false, missing
		}
	}
	var problem *outcome.Problem
	if starts {
		if problem = r.start(ctx, o, newPipelineRun(in)); problem != nil && problem.Reason != kibashipv1.ReasonQueued {
			return false, problem
		}
	}
	// Unwanted runs are cancelled also while the wanted run waits in the queue: they may hold the slot
	// that it waits for.
	starts = starts && problem == nil
	if err := r.endOthers(ctx, *o, in.runName()); err != nil {
		return starts, r.writeProblem(ctx, kibashipv1.ConditionSucceeded, err)
	}
	return starts, problem
}

// start creates a run, or says why it waits in the queue. The lock is held for the whole of it, so starts follow one after
// another. Its lists come from the cache, and its reads of the API server are bound by the deadline of ctx.
func (r *Reconciler) start(ctx context.Context, o *Observed, desired *unstructured.Unstructured) *outcome.Problem {
	d := o.Deployment
	r.starting.Lock()
	defer r.starting.Unlock()
	problem, err := r.checkQueue(ctx, d)
	if err != nil {
		return r.writeProblem(ctx, kibashipv1.ConditionSucceeded, err)
	}
	if problem != nil {
		return problem
	}
	made, err := r.create(ctx, d, desired)
	if err != nil {
		return r.writeProblem(ctx, kibashipv1.ConditionSucceeded, err)
	}
	o.Runs = append([]Run{readRun(made, nil)}, o.Runs...)
	return nil
}

// create starts a run, unless there is one: a client that has changed it, for example to cancel it, has
// a reason. The name comes from the generation. So if the answer to the write was lost, the next attempt finds the run and
// creates no second one.
func (r *Reconciler) create(ctx context.Context, d *kibashipv1.Deployment, desired *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	w := r.Writer
	w.Client = r.Starts
	live := newRunObject(desired.GetNamespace(), desired.GetName())
	exists, err := apply.Find(ctx, w, live)
	if err != nil {
		return nil, err
	}
	if exists && ownerFor(d).Owns(live) && live.GetDeletionTimestamp() == nil {
		return live, nil
	}
	if err := r.checkLeftovers(ctx, desired); err != nil {
		return nil, err
	}
	made, err := apply.Apply(ctx, w, ownerFor(d), desired)
	if err == nil {
		runsStarted.Inc()
	}
	return made, err
}

// labelPipelineRun is Tekton's label of all that belongs to a PipelineRun, with its name.
const labelPipelineRun = "tekton.dev/pipelineRun"

// errLeftover is the end of the error of a run whose name an earlier one had, of which something is left.
var errLeftover = errors.New("an earlier run of this name is being deleted")

// checkLeftovers returns an error while TaskRuns or pods of an earlier run of the same name exist. Tekton finds both by name: it would
// take their results for those of the new run, which may build something else. The garbage collector deletes them one after the other.
func (r *Reconciler) checkLeftovers(ctx context.Context, run *unstructured.Unstructured) error {
	for _, kind := range []schema.GroupVersionKind{taskRunKind, corev1.SchemeGroupVersion.WithKind("Pod")} {
		left := &metav1.PartialObjectMetadataList{}
		left.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := r.Writer.Live.List(ctx, left, client.InNamespace(run.GetNamespace()), client.MatchingLabels{labelPipelineRun: run.GetName()}, client.Limit(1))
		if err != nil {
			return err
		}
		if len(left.Items) > 0 {
			return fmt.Errorf("%s %s of %w", kind.Kind, left.Items[0].Name, errLeftover)
		}
	}
	return nil
}

// endOthers cancels runs whose result is no longer needed, and deletes runs beyond the history.
// Their pods and volumes go with them. Only own runs are touched. The place in o.Runs, the newest first, decides which are beyond
// the history.
func (r *Reconciler) endOthers(ctx context.Context, o Observed, current string) error {
	namespace := o.Deployment.Namespace
	for i, run := range o.Runs {
		switch {
		case run.Name == current:
		case i >= kibashipv1.HistoryLimit:
			if err := r.withRun(ctx, o.Deployment, namespace, run.Name, func(live *unstructured.Unstructured) error {
				return apply.Delete(ctx, r.Client, live)
			}); err != nil {
				return err
			}
		case !run.over() && !run.Cancelling:
			if err := r.withRun(ctx, o.Deployment, namespace, run.Name, func(live *unstructured.Unstructured) error {
				// With the lock: a run that has ended since it was read is not patched.
				before := live.DeepCopy()
				if err := unstructured.SetNestedField(live.Object, "Cancelled", "spec", "status"); err != nil {
					return err
				}
				return r.Client.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(r.Writer.Manager))
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// withRun does something with a run of the Deployment's own, nothing where it is gone.
func (r *Reconciler) withRun(ctx context.Context, d *kibashipv1.Deployment, namespace, name string, do func(*unstructured.Unstructured) error) error {
	live := newRunObject(namespace, name)
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(live), live)
	if err != nil || !ownerFor(d).Owns(live) {
		return apply.IgnoreAbsent(err)
	}
	return apply.IgnoreAbsent(do(live))
}

// writeProblem returns the problem for a write that failed. An object in the way that belongs to an
// earlier Deployment of the same name is not an ownership conflict: the garbage collector deletes
// it soon.
func (r *Reconciler) writeProblem(ctx context.Context, condition string, err error) *outcome.Problem {
	p := newProblem(condition, err)
	if errors.Is(err, errLeftover) {
		return &outcome.Problem{Condition: condition, Reason: kibashipv1.ReasonWaiting, Class: outcome.Waiting, Err: outcome.ErrConflict, Message: err.Error()}
	}
	var refused *ownership.RefusedError
	if !errors.As(err, &refused) {
		return p
	}
	kind := pipelineRunKind
	if refused.Kind == pipelineKind.Kind {
		kind = pipelineKind
	}
	live := empty(kind)
	if getErr := r.Writer.Live.Get(ctx, client.ObjectKey{Namespace: refused.Namespace, Name: refused.Name}, live); getErr != nil {
		if apply.Absent(getErr) {
			p.Class = outcome.Stale
		}
		return p
	}
	owner := metav1.GetControllerOf(live)
	if live.GetDeletionTimestamp() == nil && (owner == nil || owner.Kind != "Deployment" || owner.APIVersion != kibashipv1.GroupVersion.String()) {
		return p
	}
	if live.GetDeletionTimestamp() == nil {
		other := &kibashipv1.Deployment{}
		getErr := r.Client.Get(ctx, client.ObjectKey{Namespace: refused.Namespace, Name: owner.Name}, other)
		// The owner exists, or is not known: the object stays in the way.
		if getErr == nil && other.UID == owner.UID || apply.IgnoreAbsent(getErr) != nil {
			return p
		}
	}
	return &outcome.Problem{
		Condition: condition, Reason: kibashipv1.ReasonWaiting, Class: outcome.Waiting, Err: outcome.ErrConflict,
		Message: refused.Kind + " " + refused.Name + " of an earlier Deployment of this name is being deleted",
	}
}

// pushImage returns the image of the push step: the image of the settings, else the image that the operator itself runs,
// "" if it has none.
func (r *Reconciler) pushImage(ctx context.Context) string {
	if r.Config.Builds.PushImage != "" {
		return r.Config.Builds.PushImage
	}
	return r.Own.Image(ctx)
}
