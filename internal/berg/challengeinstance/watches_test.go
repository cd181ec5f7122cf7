package challengeinstance

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
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
	"github.com/bergctf/berg-operator/internal/berg/digests"
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

// A Challenge without instances has no pass that forgets it.
func TestImagesOfADeletedChallengeAreForgotten(t *testing.T) {
	r := &Reconciler{}
	gone, kept := bergv1.Challenge{}, bergv1.Challenge{}
	gone.Namespace, gone.Name, kept.Namespace, kept.Name = "berg", "gone", "berg", "kept"
	for _, c := range []*bergv1.Challenge{&gone, &kept} {
		r.images.Note(client.ObjectKeyFromObject(c), "web", digests.Running{Image: "a:1", Digest: "one", Started: time.Unix(1, 0)})
	}
	q := priorityqueue.New[reconcile.Request]("deleted-challenge")
	defer q.ShutDown()
	events := forgetting{handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{requestFor("one")}
	}), r.images.Forget}
	events.Update(t.Context(), event.UpdateEvent{ObjectOld: &gone, ObjectNew: &gone}, q)
	if got := r.images.Len(); got != 2 {
		t.Errorf("an edit leaves %d Challenges known, want 2", got)
	}
	events.Delete(t.Context(), event.DeleteEvent{Object: &gone}, q)
	if got := r.images.Len(); got != 1 {
		t.Errorf("a deletion leaves %d Challenges known, want 1", got)
	}
	if next, _ := q.Get(); next != requestFor("one") {
		t.Errorf("enqueued %v", next)
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
	if isNew(i) {
		t.Error("one that was not started is new")
	}
	i.Status.InstanceID = "id"
	if !isNew(i) {
		t.Error("one that was never ready is not new")
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

func TestWhatMayChangeADecision(t *testing.T) {
	waits := candidate("one", 0).Instance
	runs := waits.DeepCopy()
	started(runs)
	runs.Finalizers = []string{bergv1.Finalizer}
	ends := runs.DeepCopy()
	ends.DeletionTimestamp = &metav1.Time{Time: noon}
	for name, tc := range map[string]struct {
		before *bergv1.ChallengeInstance
		change func(*bergv1.ChallengeInstance)
		want   bool
	}{
		"nothing":                   {waits, func(*bergv1.ChallengeInstance) {}, false},
		"a condition":               {waits, func(i *bergv1.ChallengeInstance) { i.Status.Conditions = []metav1.Condition{{}} }, false},
		"its start":                 {waits, started, false},
		"its spec":                  {waits, func(i *bergv1.ChallengeInstance) { i.Generation++ }, true},
		"its source":                {runs, func(i *bergv1.ChallengeInstance) { i.Labels = map[string]string{bergv1.LabelSource: "b"} }, true},
		"a freeze":                  {waits, isFrozen, true},
		"another one of its name":   {waits, func(i *bergv1.ChallengeInstance) { i.UID = "another" }, true},
		"its status is deleted":     {runs, func(i *bergv1.ChallengeInstance) { i.Status = bergv1.ChallengeInstanceStatus{} }, true},
		"its phase":                 {runs, func(i *bergv1.ChallengeInstance) { i.Status.Phase = bergv1.PhaseFailed }, false},
		"nothing of it is left":     {ends, func(i *bergv1.ChallengeInstance) { i.Finalizers = nil }, true},
		"another finalizer is left": {ends, func(i *bergv1.ChallengeInstance) { i.Finalizers = []string{"example.com/hold"} }, true},
	} {
		after := tc.before.DeepCopy()
		tc.change(after)
		if got := admissionChanged.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !admissionChanged.Create(event.CreateEvent{Object: waits}) || admissionChanged.Create(event.CreateEvent{Object: runs}) {
		t.Error("only an instance that was not started is to be decided about")
	}
	if !admissionChanged.Delete(event.DeleteEvent{Object: runs}) {
		t.Error("one that is gone frees a slot")
	}
}

func TestWhichNamespacesMayChangeADecision(t *testing.T) {
	ours, foreign := namespaceOf("one"), namespaceOf("one")
	ours.Labels = map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy}
	if holderChanged.Create(event.CreateEvent{Object: ours}) || !holderChanged.Create(event.CreateEvent{Object: foreign}) {
		t.Error("every start leads to another decision, or a foreign namespace to none")
	}
	ends := ours.DeepCopy()
	ends.DeletionTimestamp = &metav1.Time{Time: noon}
	if holderChanged.Update(event.UpdateEvent{ObjectOld: ours, ObjectNew: ours}) || !holderChanged.Update(event.UpdateEvent{ObjectOld: ours, ObjectNew: ends}) {
		t.Error("an update that changes nothing leads to another decision, or its deletion to none")
	}
	if !holderChanged.Delete(event.DeleteEvent{Object: ours}) {
		t.Error("its owner may start another instance")
	}
}

func TestStartsComeBeforeDeletionsButNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := priorityqueue.New[reconcile.Request]("priorities")
		defer q.ShutDown()
		of := func(name string, modify ...func(*bergv1.ChallengeInstance)) *bergv1.ChallengeInstance {
			return testInstance(append(modify, func(i *bergv1.ChallengeInstance) { i.Namespace, i.Name = "", name })...)
		}
		ended := func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon} }
		next := func(n int) (got []string) {
			for range n {
				request, _ := q.Get()
				got = append(got, request.Name)
				q.Done(request)
			}
			return got
		}
		instanceEvents.Create(t.Context(), event.CreateEvent{Object: of("initial", wasReady), IsInInitialList: true}, q)
		instanceEvents.Update(t.Context(), event.UpdateEvent{ObjectNew: of("ends", wasReady, ended)}, q)
		instanceEvents.Update(t.Context(), event.UpdateEvent{ObjectNew: of("changed", wasReady)}, q)
		instanceEvents.Update(t.Context(), event.UpdateEvent{ObjectNew: of("starts", started)}, q)
		if got := next(4); !slices.Equal(got, []string{"starts", "changed", "ends", "initial"}) {
			t.Errorf("got %v", got)
		}
		<-time.After(2 * maxDeletionDelay) // the deletion comes once more
		next(1)

		instanceEvents.Update(t.Context(), event.UpdateEvent{ObjectNew: of("ends", wasReady, ended)}, q)
		<-time.After(2 * maxDeletionDelay)
		instanceEvents.Update(t.Context(), event.UpdateEvent{ObjectNew: of("starts", started)}, q)
		if got := next(2); !slices.Equal(got, []string{"ends", "starts"}) {
			t.Errorf("got %v: a deletion has waited too long", got)
		}
	})
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
