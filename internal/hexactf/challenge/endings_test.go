package challenge

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
)

func TestDeletedWaitsForNoOtherMessage(t *testing.T) {
	messages := func(states ...hexactfv1.State) *hexactfv1.ChallengeStatus {
		s := &hexactfv1.ChallengeStatus{Messages: &hexactfv1.Messages{}}
		for i, state := range states {
			s.Messages.Outbox = append(s.Messages.Outbox, hexactfv1.Message{Sequence: int64(i + 1), NewStatus: state})
		}
		return s
	}
	const creating, running, deleted = hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted
	for name, tc := range map[string]struct {
		status       *hexactfv1.ChallengeStatus
		acknowledged int64
		before       int
		last         bool
	}{
		"none":                {&hexactfv1.ChallengeStatus{}, 0, 0, false},
		"alive":               {messages(creating, running), 0, 2, false},
		"earlier ones wait":   {messages(creating, running, deleted), 1, 1, true},
		"only the last":       {messages(creating, running, deleted), 2, 0, true},
		"all acknowledged":    {messages(creating, running, deleted), 3, 0, false},
		"deleted immediately": {messages(deleted), 0, 0, true},
		"none acknowledged":   {messages(creating, deleted), 0, 1, true},
	} {
		_, last := deletedMessage(tc.status, tc.acknowledged)
		if before := len(pendingBefore(tc.status, tc.acknowledged)); before != tc.before || last != tc.last {
			t.Errorf("%s: %d before, last %t", name, before, last)
		}
	}
}

// The message about the end of a challenge is sent when another one has its name, or none; never while it exists itself.
func TestEndingsOfFormerChallengesOfAName(t *testing.T) {
	name := types.NamespacedName{Namespace: "event", Name: "challenge-1-alice"}
	noon := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	e := &endings{all: map[types.UID]ending{
		"second": {challenge: name, uid: "second", recorded: noon.Add(time.Second)},
		"first":  {challenge: name, uid: "first", recorded: noon},
		"other":  {challenge: types.NamespacedName{Namespace: "event", Name: "challenge-1-bob"}, uid: "other", recorded: noon},
	}}
	if _, ready := e.find(name, ""); ready {
		t.Error("messages could overtake those of an earlier process")
	}
	e.loaded = true
	for present, want := range map[types.UID][]types.UID{"": {"first", "second"}, "second": {"first"}, "third": {"first", "second"}} {
		former, _ := e.find(name, present)
		var got []types.UID
		for _, f := range former {
			got = append(got, f.uid)
		}
		if len(got) != len(want) || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] {
			t.Errorf("present %q: %v, want %v", present, got, want)
		}
	}
	if n, oldest := e.unsent(); n != 3 || !oldest.Equal(noon) {
		t.Errorf("%d unsent since %s", n, oldest)
	}
}
