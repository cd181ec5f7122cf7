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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// indexQueued finds the Deployments that wait for others to end their builds, under the value of that name.
const indexQueued = "deploymentQueued"

// overtime is how long after its timeout a run counts that Tekton has not ended: Tekton may not run.
const overtime = 5 * time.Minute

// queued is a Deployment that waits for a slot.
type queued struct {
	Deployment types.NamespacedName
	Since      time.Time
	// Message is the text of its condition, which names its position.
	Message string
}

// checkQueue returns why a run cannot start yet: the maximum number of runs is running, or others are ahead. The caller holds
// r.starting from here to the creation of the run, so that two Deployments cannot take the same slot.
func (r *Reconciler) checkQueue(ctx context.Context, d *kibashipv1.Deployment) (*outcome.Problem, error) {
	// This list waits for the runs that this process has made: the one that took the last slot is in it.
	running, err := r.running(ctx)
	if err != nil {
		return nil, err
	}
	own := client.ObjectKeyFromObject(d)
	limits, err := r.classLimits(ctx)
	if err != nil {
		return nil, err
	}
	if slices.Contains(running, own) {
		return nil, nil // another run of this Deployment is being cancelled
	}
	waiting, err := r.waiting(ctx, running)
	if err != nil {
		return nil, err
	}
	isOwn := func(q queued) bool { return q.Deployment == own }
	// It has not waited yet, and goes behind all those of its rank.
	if !slices.ContainsFunc(waiting, isOwn) {
		waiting = append(waiting, queued{Deployment: own, Since: r.Clock.Now()})
	}
	ahead, limit := slices.IndexFunc(inOrder(waiting, running, limits), isOwn), r.Config.Builds.Concurrency
	message := queueMessage(limit, ahead)
	switch {
	// inOrder has left it out.
	case ahead < 0:
		message = limits[d.Namespace].message()
	case limit == 0 || len(running)+ahead < limit:
		return nil, nil
	}
	return &outcome.Problem{Condition: kibashipv1.ConditionSucceeded, Reason: kibashipv1.ReasonQueued, Class: outcome.Waiting, Message: message}, nil
}

// classLimit is how many builds the class of a Project allows at the same time.
type classLimit struct {
	class  string
	builds int
}

func (l classLimit) message() string {
	return fmt.Sprintf("Waits for another build of its Project to end: ProjectClass %s allows %d at the same time", l.class, l.builds)
}

// classLimits returns the limits of Projects whose class has one, by namespace. A namespace has one Project, so the namespace of
// a Deployment identifies its limit.
func (r *Reconciler) classLimits(ctx context.Context) (map[string]classLimit, error) {
	var classes kibashipv1.ProjectClassList
	var projects kibashipv1.ProjectList
	if err := r.Client.List(ctx, &classes, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil || len(classes.Items) == 0 {
		return nil, err
	}
	builds := map[string]int32{}
	for i := range classes.Items {
		builds[classes.Items[i].Name] = classes.Items[i].Spec.ConcurrentBuilds
	}
	if err := r.Client.List(ctx, &projects, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	limits := map[string]classLimit{}
	for i := range projects.Items {
		if class := projects.Items[i].Spec.Class; builds[class] > 0 {
			limits[naming.Namespace(projects.Items[i].Name)] = classLimit{class, int(builds[class])}
		}
	}
	return limits, nil
}

// waiting returns the Deployments whose status says that they are queued, without Deployments whose run has started. The place in
// the queue is the time at which the condition became Queued. It is in the status, so a new leader has the same order.
func (r *Reconciler) waiting(ctx context.Context, running []types.NamespacedName, opts ...client.ListOption) ([]queued, error) {
	var list kibashipv1.DeploymentList
	if err := r.Client.List(ctx, &list, append(opts, client.MatchingFields{indexQueued: indexQueued}, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	var all []queued
	for i := range list.Items {
		d := &list.Items[i]
		if c := queuedCondition(d); c != nil && d.DeletionTimestamp == nil && !slices.Contains(running, client.ObjectKeyFromObject(d)) {
			all = append(all, queued{client.ObjectKeyFromObject(d), c.LastTransitionTime.Time, c.Message})
		}
	}
	return all, nil
}

// ofQueue maps an event that changes the queue to the queued Deployments that can start, and to Deployments whose status names an
// outdated position. Each of them counts again under the lock, so a wrong guess here starts nothing. It only costs a
// reconciliation.
func (r *Reconciler) ofQueue(ctx context.Context, _ client.Object) []ctrl.Request {
	if !r.hasTekton() {
		return nil // all are enqueued when it is installed
	}
	running, err := r.running(ctx, client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil // only a cache that is shutting down fails
	}
	waiting, err := r.waiting(ctx, running, client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil // as above
	}
	limits, err := r.classLimits(ctx)
	if err != nil {
		return nil // as above
	}
	var requests []ctrl.Request
	limit := r.Config.Builds.Concurrency
	order := inOrder(waiting, running, limits)
	for ahead, q := range order {
		if limit == 0 || len(running)+ahead < limit || q.Message != queueMessage(limit, ahead) {
			requests = append(requests, ctrl.Request{NamespacedName: q.Deployment})
		}
	}
	for _, q := range waiting {
		if !slices.Contains(order, q) && q.Message != limits[q.Deployment.Namespace].message() {
			requests = append(requests, ctrl.Request{NamespacedName: q.Deployment})
		}
	}
	return requests
}

// maxPosition is the last position in the queue that a status gives as a number. Each end of a build changes all these
// statuses.
const maxPosition = 20

func queueMessage(limit, ahead int) string {
	position := fmt.Sprintf("it is number %d in the queue", ahead+1)
	if ahead >= maxPosition {
		position = fmt.Sprintf("more than %d go first", maxPosition)
	}
	return fmt.Sprintf("Waits for another build to end: BUILD_CONCURRENCY allows %d at the same time, and %s", limit, position)
}

// inOrder sorts queued Deployments by the order in which they get a slot: first by the number of builds of their Project, then by
// the time that they have waited. It leaves out those that must wait for a build of their own Project, so that they occupy no
// position. The rank of a Deployment is the number of builds of its Project that run or are ahead of it. So a Project with many
// Deployments cannot keep out another one with a single one.
func inOrder(waiting []queued, running []types.NamespacedName, limits map[string]classLimit) []queued {
	all := slices.SortedFunc(slices.Values(waiting), byTime)
	order := map[string]int{}
	for _, key := range running {
		order[key.Namespace]++
	}
	rank := map[types.NamespacedName]int{}
	for _, q := range all {
		rank[q.Deployment] = order[q.Deployment.Namespace]
		order[q.Deployment.Namespace]++
	}
	all = slices.DeleteFunc(all, func(q queued) bool {
		limit, limited := limits[q.Deployment.Namespace]
		return limited && rank[q.Deployment] >= limit.builds
	})
	slices.SortStableFunc(all, func(a, b queued) int { return cmp.Compare(rank[a.Deployment], rank[b.Deployment]) })
	return all
}

// byTime orders by the start of the wait, in seconds because a condition has no finer time, and then by name.
func byTime(a, b queued) int {
	return cmp.Or(
		a.Since.Truncate(time.Second).Compare(b.Since.Truncate(time.Second)),
		cmp.Compare(a.Deployment.Namespace, b.Deployment.Namespace), cmp.Compare(a.Deployment.Name, b.Deployment.Name),
	)
}

// running returns the Deployments that own a run which is not over. Without another option the list has every run that this
// process has made. A run that another client made takes no slot.
func (r *Reconciler) running(ctx context.Context, opts ...client.ListOption) ([]types.NamespacedName, error) {
	runs := emptyList(pipelineRunKind)
	if err := r.Starts.List(ctx, runs, append(opts, client.HasLabels{kibashipv1.LabelDeployment}, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	var all []types.NamespacedName
	for i := range runs.Items {
		run := &runs.Items[i]
		owner := metav1.GetControllerOf(run)
		switch {
		case owner == nil, run.GetDeletionTimestamp() != nil, findSucceeded(parseStatus(run)).Status != metav1.ConditionUnknown,
			r.Clock.Since(run.GetCreationTimestamp().Time) > r.Config.Builds.Timeout+overtime:
			continue
		}
		d := &kibashipv1.Deployment{}
		key := client.ObjectKey{Namespace: run.GetNamespace(), Name: owner.Name}
		if err := r.Client.Get(ctx, key, d, client.DisableReadYourWritesConsistency); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			continue
		}
		if ownerFor(d).Owns(run) && !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	return all, nil
}

// queuedCondition is the condition that says that a Deployment waits for a slot, nil where it does not.
func queuedCondition(d *kibashipv1.Deployment) *metav1.Condition {
	if c := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionSucceeded); c != nil && c.Reason == kibashipv1.ReasonQueued {
		return c
	}
	return nil
}

// isBuilding reports whether the status of a Deployment says that its run is not over.
func isBuilding(d *kibashipv1.Deployment) bool {
	return d.Status.CurrentPipelineRun != nil && d.Status.CurrentPipelineRun.Phase == kibashipv1.DeploymentRunning
}
