package challengeinstance

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/queue"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Of a write that may have been done, the room is kept.
func TestRoomIsGivenBackWhenNothingWasWritten(t *testing.T) {
	of := schema.GroupResource{Resource: "challengeinstances"}
	for name, tc := range map[string]struct {
		err   error
		other bool // whether another one may start then
	}{
		"conflict": {apierrors.NewConflict(of, "a", errors.New("x")), true},
		"gone":     {fmt.Errorf("%w: x", outcome.ErrGone), true},
		"refused":  {apierrors.NewForbidden(of, "a", errors.New("x")), true},
		"timeout":  {apierrors.NewTimeoutError("x", 1), false},
		"cut off":  {errors.New("EOF"), false},
	} {
		r := &Reconciler{}
		r.queue.Queue = queue.New(1)
		a, b := candidate("a", 0).Instance, candidate("b", 1).Instance
		r.queue.See(r.sightOf(a))
		r.queue.See(r.sightOf(b))
		if !r.queue.Ask(r.entryOf(a)).Go {
			t.Fatalf("%s: the first one does not start", name)
		}
		r.notStarted(a, tc.err)
		r.queue.Aside(a.UID)
		if got := r.queue.Ask(r.entryOf(b)).Go; got != tc.other {
			t.Errorf("%s: the other one starts: %t", name, got)
		}
	}
}

func TestSights(t *testing.T) {
	r := &Reconciler{Config: config.Berg{Challenge: config.Challenge{Namespace: "berg"}}}
	fresh := testInstance(func(i *bergv1.ChallengeInstance) { i.ResourceVersion = "42" })
	if s := r.sightOf(fresh); s.Holds || !s.Live || s.Version != 42 || s.GivesWay || s.Challenge.String() != "berg/chall" {
		t.Errorf("%+v", s)
	}
	for name, tc := range map[string]struct {
		i           *bergv1.ChallengeInstance
		holds, live bool
	}{
		"started":         {testInstance(started), true, true},
		"asked to end":    {testInstance(func(i *bergv1.ChallengeInstance) { i.Spec.TerminationReason = bergv1.TerminationAdmin }), false, false},
		"started, ending": {testInstance(started, func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon} }), true, false},
	} {
		if s := r.sightOf(tc.i); s.Holds != tc.holds || s.Live != tc.live {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if !r.sightOf(testInstance(func(i *bergv1.ChallengeInstance) { i.Labels = map[string]string{bergv1.LabelCheck: "web"} })).GivesWay {
		t.Error("a check does not give way")
	}
}

func TestTheQueuesOfManyChallengesAreBounded(t *testing.T) {
	of := func(place, name string) types.NamespacedName {
		return types.NamespacedName{Namespace: place, Name: name}
	}
	few := map[types.NamespacedName]queue.Waiting{of("a", "web"): {Number: 2, Oldest: noon.Add(-time.Hour)}, of("b", "web"): {Number: 1, Oldest: noon}}
	if got := lengthsOf(few); !maps.Equal(got, map[string]int{"web": 3}) {
		t.Errorf("%v", got)
	}
	if got := maxWaiting(few, noon); got != time.Hour {
		t.Errorf("the oldest has waited %s", got)
	}
	many := map[types.NamespacedName]queue.Waiting{}
	total := 0
	for n := range 2 * maxChallenges {
		many[of("a", fmt.Sprint("c", n))] = queue.Waiting{Number: n + 1}
		total += n + 1
	}
	got, sum := lengthsOf(many), 0
	for _, n := range got {
		sum += n
	}
	if len(got) != maxChallenges || sum != total || got[fmt.Sprint("c", 2*maxChallenges-1)] != 2*maxChallenges {
		t.Errorf("%d series, %d of %d instances", len(got), sum, total)
	}
}
