package deployment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// indexQueued finds the Deployments that wait for others to end their builds, under the value of that name.
const indexQueued = "deploymentQueued"

// overtime is how long after its timeout a run counts that Tekton has not ended: Tekton may not run.
const overtime = 5 * time.Minute

// build is a run under way, or one that waits for its turn.
type build struct {
	Deployment types.NamespacedName
	Since      time.Time
}

// checkQueue returns why a run cannot start yet: as many as may run at the same time do so, or others go first. The caller holds
// r.starting, so that two Deployments do not take the same place.
func (r *Reconciler) checkQueue(ctx context.Context, d *kibashipv1.Deployment) (*outcome.Problem, error) {
	running, err := r.running(ctx)
	if err != nil {
		return nil, err
	}
	own := build{Deployment: client.ObjectKeyFromObject(d), Since: r.Clock.Now()}
	if slices.Contains(running, own.Deployment) {
		return nil, nil // another run of this Deployment is being cancelled
	}
	var queued kibashipv1.DeploymentList
	if err := r.Client.List(ctx, &queued, client.MatchingFields{indexQueued: indexQueued}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var waiting []build
	for i := range queued.Items {
		other := &queued.Items[i]
		if key := client.ObjectKeyFromObject(other); key != own.Deployment && other.DeletionTimestamp == nil {
			waiting = append(waiting, build{Deployment: key, Since: queuedSince(other)})
		} else if key == own.Deployment {
			own.Since = queuedSince(other)
		}
	}
	ahead := goFirst(own, waiting, running)
	limit := r.Config.Builds.Concurrency
	if len(running)+ahead < limit {
		return nil, nil
	}
	return &outcome.Problem{
		Condition: kibashipv1.ConditionSucceeded, Reason: kibashipv1.ReasonQueued, Class: outcome.Waiting, Message: queueMessage(limit, ahead),
	}, nil
}

// maxPlace is the last place in the queue that a status tells by its number. Each end of a build changes all these statuses.
const maxPlace = 20

func queueMessage(limit, ahead int) string {
	place := fmt.Sprintf("it is number %d in the queue", ahead+1)
	if ahead >= maxPlace {
		place = fmt.Sprintf("more than %d go first", maxPlace)
	}
	return fmt.Sprintf("Waits for another build to end: BUILD_CONCURRENCY allows %d at the same time, and %s", limit, place)
}

// goFirst returns how many of those that wait go before one: of the Project with the fewest builds first, then the one that has waited
// longest.
func goFirst(own build, waiting []build, running []types.NamespacedName) (ahead int) {
	all := append(slices.Clone(waiting), own)
	slices.SortFunc(all, byTime)
	of := map[string]int{}
	for _, key := range running {
		of[key.Namespace]++
	}
	turn := map[types.NamespacedName]int{}
	for _, b := range all {
		turn[b.Deployment] = of[b.Deployment.Namespace]
		of[b.Deployment.Namespace]++
	}
	for _, b := range waiting {
		if cmp.Or(cmp.Compare(turn[b.Deployment], turn[own.Deployment]), byTime(b, own)) < 0 {
			ahead++
		}
	}
	return ahead
}

// byTime orders by the second in which they began to wait, which is what a condition knows, and then by the name.
func byTime(a, b build) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Deployment.String(), b.Deployment.String()))
}

// startedRun is a run that this process has made.
type startedRun struct {
	Name string
	At   time.Time
}

// running returns the Deployments that have a run under way, with those that this process has started and whose run the cache does not show
// yet. A run that another client made takes no place. The caller holds r.starting.
func (r *Reconciler) running(ctx context.Context) ([]types.NamespacedName, error) {
	all, err := r.withRuns(ctx)
	if err != nil {
		return nil, err
	}
	for key, run := range r.started {
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: run.Name}, runOf(key.Namespace, run.Name), client.DisableReadYourWritesConsistency)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, err
		case err == nil, r.Clock.Since(run.At) > overtime: // it is shown, or was deleted before
			delete(r.started, key)
		case !slices.Contains(all, key):
			all = append(all, key)
		}
	}
	return all, nil
}

// withRuns returns the Deployments that own a run which is not over.
func (r *Reconciler) withRuns(ctx context.Context) ([]types.NamespacedName, error) {
	runs := emptyList(pipelineRunKind)
	if err := r.Client.List(ctx, runs, client.HasLabels{kibashipv1.LabelDeployment}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var all []types.NamespacedName
	for i := range runs.Items {
		run := &runs.Items[i]
		owner := metav1.GetControllerOf(run)
		switch {
		case owner == nil, run.GetDeletionTimestamp() != nil, succeededOf(statusOf(run)).Status != metav1.ConditionUnknown,
			r.Clock.Since(run.GetCreationTimestamp().Time) > r.Config.Builds.Timeout+overtime:
			continue
		}
		d := &kibashipv1.Deployment{}
		key := client.ObjectKey{Namespace: run.GetNamespace(), Name: owner.Name}
		if err := r.Client.Get(ctx, key, d); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			continue
		}
		if ownerOf(d).Owns(run) && !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	return all, nil
}

// isQueued reports whether a Deployment waits for its turn.
func isQueued(d *kibashipv1.Deployment) bool {
	c := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionSucceeded)
	return c != nil && c.Reason == kibashipv1.ReasonQueued
}

// isBuilding reports whether the status of a Deployment says that its run is not over.
func isBuilding(d *kibashipv1.Deployment) bool {
	return d.Status.CurrentPipelineRun != nil && d.Status.CurrentPipelineRun.Phase == kibashipv1.DeploymentRunning
}

// queuedSince is when a Deployment began to wait.
func queuedSince(d *kibashipv1.Deployment) time.Time {
	if c := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionSucceeded); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}
