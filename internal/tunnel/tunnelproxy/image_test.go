package tunnelproxy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
)

// images is a registry that may be down.
type images struct {
	down  error
	pings int
}

func (i *images) Ping(context.Context) error {
	i.pings++
	return i.down
}

func (i *images) Ensure(context.Context, string) (string, error) { return "image@sha256:1", nil }

func TestTheRegistryMustAnswerBeforeAnImageIsBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place := &images{down: errors.New("connection refused")}
		r := &Reconciler{Config: loaded(t, "TUNNEL_IMAGE=", "TUNNEL_REGISTRY=registry.example"), Images: place, jobs: jobs.New(1, nil)}
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if err := r.jobs.Source().Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		p := pairIn(tunnelv1.StatePending)
		check := func() string {
			problem := r.awaitRegistry(p, time.Now())
			synctest.Wait()
			if problem == nil {
				return ""
			}
			if problem.Condition != tunnelv1.ConditionImageReady || problem.Message == "" {
				t.Errorf("%+v", problem)
			}
			return problem.Reason
		}
		requeued := func() {
			request, _ := queue.Get()
			queue.Done(request)
		}
		if got := check(); got != tunnelv1.ReasonImageBuilding {
			t.Errorf("at first: %q", got)
		}
		requeued()
		for range 3 {
			began := time.Now()
			if got := check(); got != tunnelv1.ReasonRegistryNotReady {
				t.Fatalf("it is down: %q", got)
			}
			asked := place.pings
			if got := check(); got != tunnelv1.ReasonRegistryNotReady || place.pings != asked {
				t.Errorf("before its time: %q, asked %d times", got, place.pings-asked)
			}
			requeued()
			if time.Since(began) < time.Second {
				t.Error("it is asked again without a delay")
			}
			// The reason does not change while it is asked again.
			if got := check(); got != tunnelv1.ReasonRegistryNotReady || place.pings != asked+1 {
				t.Errorf("when it is time: %q, asked %d times", got, place.pings-asked)
			}
			requeued()
		}
		place.down = nil
		check()
		requeued()
		check()
		if got := check(); got != "" {
			t.Errorf("it answers: %q", got)
		}

		// The registry is not asked if that is not needed, nor when the build has begun.
		p.UID = "u-2"
		p.Status.State = tunnelv1.StateBuildingImage
		if got := check(); got != "" {
			t.Errorf("a build that has begun: %q", got)
		}
		p.Status.State, p.Status.ClientProxyContainerImage = tunnelv1.StateStarting, "image"
		if got := check(); got != "" {
			t.Errorf("an image that exists: %q", got)
		}
		stop()
		synctest.Wait()
	})
}
