package challengeinstance

import (
	"context"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestFirstReadinessHasPriority(t *testing.T) {
	waiting, ready := pod("web", false), pod("web", true)
	for name, c := range map[string]struct {
		before, after corev1.Pod
		ran           bool
		want          []string
	}{
		"becomes ready":                 {waiting, ready, false, []string{"pod's", "one", "other"}},
		"becomes ready again":           {waiting, ready, true, []string{"one", "other", "pod's"}},
		"changes while it is ready":     {ready, ready, false, []string{"one", "other", "pod's"}},
		"changes while it is not ready": {waiting, waiting, false, []string{"one", "other", "pod's"}},
		"is ready no more":              {ready, waiting, false, []string{"one", "other", "pod's"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := priorityqueue.New[reconcile.Request]("first-ready")
			defer q.ShutDown()
			q.Add(requestFor("one"))
			q.Add(requestFor("other"))
			of := func(context.Context, client.Object) []reconcile.Request {
				return []reconcile.Request{requestFor("pod's")}
			}
			ofNew := of
			if c.ran {
				ofNew = func(context.Context, client.Object) []reconcile.Request { return nil }
			}
			firstReady{handler.EnqueueRequestsFromMapFunc(of), ofNew}.Update(t.Context(), event.UpdateEvent{ObjectOld: &c.before, ObjectNew: &c.after}, q)
			var got []string
			for range c.want {
				next, _ := q.Get()
				got = append(got, next.Name)
				q.Done(next)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestPodChanged(t *testing.T) {
	waiting := pod("web", false)
	with := func(change func(*corev1.Pod)) corev1.Pod {
		p := *waiting.DeepCopy()
		change(&p)
		return p
	}
	pulling := waitingPod("web", "ErrImagePull")
	for name, c := range map[string]struct {
		before, after corev1.Pod
		want          bool
	}{
		"is scheduled": {waiting, with(func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
		}), false},
		"is being created": {waiting, waitingPod("web", "ContainerCreating"), false},
		"restarts":         {waiting, with(func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} }), false},
		"becomes ready":    {waiting, pod("web", true), true},
		"is ready no more": {pod("web", true), waiting, true},
		"has failed":       {pod("web", true), with(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodFailed} }), true},
		"is deleted":       {waiting, with(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), true},
		"cannot be scheduled": {waiting, with(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		}), true},
		"cannot pull": {waiting, pulling, true},
		"has other words": {pulling, with(func(p *corev1.Pod) {
			p.Status = *pulling.Status.DeepCopy()
			p.Status.ContainerStatuses[0].State.Waiting.Message = "else"
		}), true},
		"is of another": {waiting, pod("db", false), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := podChanged.Update(event.UpdateEvent{ObjectOld: &c.before, ObjectNew: &c.after}); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestAnInstanceIsNewUntilItHasRun(t *testing.T) {
	i := &bergv1.ChallengeInstance{}
	if !isNew(i) {
		t.Error("one without a status is not new")
	}
	i.DeletionTimestamp = &metav1.Time{}
	if isNew(i) {
		t.Error("one that is being deleted is new")
	}
	i.DeletionTimestamp = nil
	i.Status.ReadyAt = &metav1.Time{}
	if isNew(i) {
		t.Error("one that has run is new")
	}
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
}

func TestReplacementIsAChange(t *testing.T) {
	before := candidate("one", 0).Instance
	after := before.DeepCopy()
	if changes.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("nothing has changed")
	}
	after.UID = "another"
	if !changes.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("a successor of the same name and generation goes by unseen")
	}
}

func TestWhatMayMoveAnotherInTheOrder(t *testing.T) {
	before := candidate("one", 0).Instance
	for name, tc := range map[string]struct {
		change func(*bergv1.ChallengeInstance)
		want   bool
	}{
		"nothing":           {func(*bergv1.ChallengeInstance) {}, false},
		"a condition":       {func(i *bergv1.ChallengeInstance) { i.Status.Conditions = []metav1.Condition{{}} }, false},
		"the addresses":     {func(i *bergv1.ChallengeInstance) { i.Status.Services = []bergv1.ServiceEndpoint{{}} }, false},
		"it is started":     {func(i *bergv1.ChallengeInstance) { i.Status.InstanceID = "id" }, true},
		"its phase":         {func(i *bergv1.ChallengeInstance) { i.Status.Phase = bergv1.PhaseFailed }, true},
		"what it asks for":  {func(i *bergv1.ChallengeInstance) { i.Generation++ }, true},
		"it is being ended": {func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{} }, true},
		"it is another one": {func(i *bergv1.ChallengeInstance) { i.UID = "another" }, true},
		"a foreign label":   {func(i *bergv1.ChallengeInstance) { i.Labels = map[string]string{"a": "b"} }, false},
	} {
		after := before.DeepCopy()
		tc.change(after)
		if got := placeChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !placeChanged.Create(event.CreateEvent{Object: before}) || placeChanged.Create(event.CreateEvent{Object: before, IsInInitialList: true}) {
		t.Error("a new one may come before others, and of those at the start all are looked at")
	}
	if !placeChanged.Delete(event.DeleteEvent{Object: before}) {
		t.Error("one that is gone makes room")
	}
}

func TestRefusalChanged(t *testing.T) {
	none := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ReplicaSetCreateError", Message: "no set"}
	for name, tc := range map[string]struct {
		before, after *appsv1.Deployment
		want          bool
	}{
		"is refused":             {deploymentWith(""), deploymentWith("", failure(0, "no")), true},
		"is refused no more":     {deploymentWith("", failure(0, "no")), deploymentWith(""), true},
		"is refused as before":   {deploymentWith("", failure(time.Hour, "no")), deploymentWith("", failure(0, "no")), false},
		"is refused differently": {deploymentWith("", failure(0, "no")), deploymentWith("", failure(0, "never")), true},
		"gets no ReplicaSet":     {deploymentWith("", failure(0, "no")), deploymentWith("", failure(0, "no"), none), true},
		"gets on":                {deploymentWith(""), deploymentWith(""), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusalChanged.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
