package check

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

func clientOf(t *testing.T, refuses error, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := bergv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return refuses
		},
	}).Build()
}

// A check that cannot begin lets others go first, and enqueues them.
func TestABeginningThatIsRefused(t *testing.T) {
	kind := schema.GroupResource{Group: bergv1.GroupVersion.Group, Resource: "challengechecks"}
	for name, tc := range map[string]struct {
		refuses error
		held    bool
	}{
		"refused":   {apierrors.NewForbidden(kind, "web", nil), true},
		"overtaken": {apierrors.NewConflict(kind, "web", nil), false},
	} {
		c := checkOf()
		r := &Reconciler{Access: reconcile.Access{Client: clientOf(t, tc.refuses, c), Events: events.NewFakeRecorder(9)}, queueChanged: make(chan event.GenericEvent, 1)}
		r.Config.Check.Concurrency = 1
		r.Clock = clocktesting.NewFakePassiveClock(noon)
		s := state{Observed: Observed{Check: c, Challenge: challengeOf(), Contenders: []contender{{UID: c.UID, Due: noon}}}}
		if err := r.apply(t.Context(), c, &s, &outcome.Problems{}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if held := !r.refusals.holds(c, noon).IsZero(); held != tc.held || len(r.queueChanged) == 1 != tc.held {
			t.Errorf("%s: it stands back: %t, others are woken: %t", name, held, len(r.queueChanged) == 1)
		}
	}
}

// Who stands behind a check that cannot be made any more is woken by what keeps that from it.
func TestAChallengeWakesWhoWaits(t *testing.T) {
	of := func(name, challenge string, runs bool) *bergv1.ChallengeCheck {
		return checkOf(func(c *bergv1.ChallengeCheck) {
			c.Name, c.Spec.ChallengeRef.Name = name, challenge
			if runs {
				c.Status.Run = &bergv1.CheckRun{StartedAt: atNoon(0)}
			}
		})
	}
	r := &Reconciler{Access: reconcile.Access{Client: clientOf(t, nil, of("its-own", "web", true), of("waits", "pwn", false), of("is-made", "pwn", true))}}
	r.Config.Challenge.Namespace = "berg"
	var enqueued []string
	for _, request := range r.ofChallenge(t.Context(), challengeOf()) {
		enqueued = append(enqueued, request.Name)
	}
	slices.Sort(enqueued)
	if !slices.Equal(enqueued, []string{"its-own", "waits"}) {
		t.Errorf("%v", enqueued)
	}
}
