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

// images is a registry that answers, or does not.
type images struct {
	down  error
	pings int
}

func (i *images) Ping(context.Context) error {
	i.pings++
	return i.down
}

func (i *images) Ensure(context.Context, string) (string, error) { return "image@sha256:1", nil }

func TestARegistryMustAnswerBeforeAnImageIsLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place := &images{down: errors.New("connection refused")}
		r := &Reconciler{Config: loaded(t, "TUNNEL_IMAGE=", "TUNNEL_REGISTRY=registry.example"), Images: place, work: jobs.New(1, nil)}
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if err := r.work.Source().Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		p := pairIn(tunnelv1.StatePending)
		look := func() (reason string, again time.Time) {
			problem, again := r.awaitRegistry(p, time.Now())
			synctest.Wait()
			if problem == nil {
				return "", again
			}
			if problem.Condition != tunnelv1.ConditionImageReady || problem.Message == "" {
				t.Errorf("%+v", problem)
			}
			return problem.Reason, again
		}
		if got, _ := look(); got != tunnelv1.ReasonImageBuilding {
			t.Errorf("at first: %q", got)
		}
		for range 3 {
			got, again := look()
			if got != tunnelv1.ReasonRegistryNotReady || !again.After(time.Now()) {
				t.Fatalf("it is down: %q, again at %s", got, again)
			}
			asked := place.pings
			if got, _ := look(); got != tunnelv1.ReasonRegistryNotReady || place.pings != asked {
				t.Errorf("before its time: %q, asked %d times", got, place.pings-asked)
			}
			<-time.After(time.Until(again))
			// What is told does not change while it is asked again.
			if got, _ := look(); got != tunnelv1.ReasonRegistryNotReady || place.pings != asked+1 {
				t.Errorf("when it is time: %q, asked %d times", got, place.pings-asked)
			}
		}
		place.down = nil
		_, again := look()
		<-time.After(time.Until(again))
		look()
		if got, _ := look(); got != "" {
			t.Errorf("it answers: %q", got)
		}

		// Nobody asks for what is not needed, nor when the build has begun.
		p.UID = "u-2"
		p.Status.State = tunnelv1.StateBuildingImage
		if got, _ := look(); got != "" {
			t.Errorf("a build that has begun: %q", got)
		}
		p.Status.State, p.Status.ClientProxyContainerImage = tunnelv1.StateStarting, "image"
		if got, _ := look(); got != "" {
			t.Errorf("an image that is there: %q", got)
		}
		stop()
		synctest.Wait()
	})
}
