package challenge

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
)

// Players wait for live challenges, so these come first. Challenges that are being deleted do not wait for those that
// exist when the operator starts.
func TestOrderOfTheQueue(t *testing.T) {
	named := func(name string) *hexactfv1.Challenge {
		c := testChallenge()
		c.Name = name
		return c
	}
	queue := priorityqueue.New[ctrl.Request]("order")
	defer queue.ShutDown()
	live := handler.EnqueueRequestForObject{}
	live.Create(t.Context(), event.CreateEvent{Object: named("old"), IsInInitialList: true}, queue)
	terminating.Update(t.Context(), event.UpdateEvent{ObjectOld: named("terminating"), ObjectNew: named("terminating")}, queue)
	live.Create(t.Context(), event.CreateEvent{Object: named("new")}, queue)
	for _, want := range []string{"new", "terminating", "old"} {
		got, _ := queue.Get()
		if got.Name != want {
			t.Errorf("%s comes before %s", got.Name, want)
		}
		queue.Done(got)
	}
}

// While requests that delete expired challenges are in progress, no challenge is finalized, for a limited time.
func TestFinalizationIsDelayedByDeletions(t *testing.T) {
	for name, tc := range map[string]struct {
		expiring int32
		deleted  time.Duration // before now
		delayed  bool
	}{
		"no deletion in progress":  {0, 0, false},
		"one deletion in progress": {1, 0, true},
		"for too long":             {1, maxFinalizeDelay, false},
	} {
		c := testChallenge()
		c.Finalizers = []string{hexactfv1.Finalizer}
		server := &cluster{challenge: c}
		r := server.reconciler(t)
		r.expiring.Store(tc.expiring)
		c.DeletionTimestamp = &metav1.Time{Time: noon.Add(-tc.deleted)}
		done, again, err := r.finalize(t.Context(), c, noon)
		if err != nil || done == tc.delayed || (again == finalizeRetry) != tc.delayed {
			t.Errorf("%s: done %v, again after %s, error %v", name, done, again, err)
		}
		now := &hexactfv1.Challenge{}
		if err := server.Get(t.Context(), client.ObjectKeyFromObject(c), now); err != nil {
			t.Fatal(err)
		}
		if isRecorded := now.Status.CurrentStatus.State == hexactfv1.StateTerminating; isRecorded == tc.delayed {
			t.Errorf("%s: the state is %s", name, now.Status.CurrentStatus.State)
		}
	}
}

// A broker that was paused may deliver a message that it never acknowledged.
func TestMessagesThatWereGivenUpMayStillArrive(t *testing.T) {
	r := (&cluster{challenge: testChallenge()}).reconciler(t)
	c := testChallenge()
	r.deliveries.since(c, noon)
	r.lose(t.Context(), c, Delivery{Problem: "connection refused"}, 2)
	select {
	case event := <-r.Events.(*events.FakeRecorder).Events:
		if !strings.Contains(event, "may be lost") || strings.Contains(event, "are lost") {
			t.Errorf("the event is %q", event)
		}
	default:
		t.Error("no event")
	}
}
