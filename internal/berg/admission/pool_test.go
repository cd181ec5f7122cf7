package admission

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func ofPool(i *Instance)    { i.Prepared = true }
func claimable(i *Instance) { i.Prepared, i.Started, i.Claimable = true, true, true }
func claimedBy(uid types.UID) func(*Instance) {
	return func(i *Instance) { i.Prepared, i.Started, i.ClaimedBy = true, true, uid }
}

// taken are the prepared instances by the instances that take them over.
func taken(decisions []Decision) map[string]string {
	all := map[string]string{}
	for _, d := range decisions {
		if d.TakesOver.Name != "" {
			all[d.Key.Name] = d.TakesOver.Name
		}
	}
	return all
}

func TestPreparedInstances(t *testing.T) {
	for title, tc := range map[string]struct {
		all     []Instance
		limits  Limits
		one     Challenge // the limits of the Challenge "a"
		taken   map[string]string
		reasons map[string]string
		drained []string
	}{
		"the oldest player gets the oldest prepared one": {
			all:   []Instance{instance(1, "a", claimable), instance(2, "a", claimable), instance(11, "a"), instance(10, "a"), instance(12, "a")},
			taken: map[string]string{"0010": "0001", "0011": "0002"},
		},
		"of its own Challenge only": {
			all: []Instance{instance(1, "b", claimable), instance(10, "a")},
		},
		"one that is not ready, or ends, is not taken": {
			all: []Instance{instance(1, "a", ofPool, started), instance(2, "a", claimable, ending), instance(10, "a")},
		},
		"a claim stays, also for one that is not ready any more, and for no other instance": {
			all:   []Instance{instance(1, "a", claimedBy("0011")), instance(2, "a", claimable), instance(10, "a"), instance(11, "a")},
			taken: map[string]string{"0010": "0002", "0011": "0001"},
		},
		"it needs no slot of all and of the Challenge": {
			all: []Instance{instance(1, "a", claimable), instance(10, "a")}, limits: Limits{All: 1}, one: Challenge{MaxInstances: 1},
			taken: map[string]string{"0010": "0001"},
		},
		"an instance that has taken one over counts once": {
			all: []Instance{instance(1, "a", claimedBy("0010")), instance(10, "a", started), instance(11, "b")}, limits: Limits{All: 2},
			reasons: map[string]string{"0011": "starts"},
		},
		"the limits of its source and namespace hold": {
			all:    []Instance{instance(1, "a", claimable), instance(9, "b", from("s"), started), instance(10, "a", from("s"))},
			limits: Limits{SourceInstances: 1}, reasons: map[string]string{"0010": string(SourceInstances)},
		},
		"prepared ones use none of the limit of a namespace": {
			all:    []Instance{instance(1, "a", claimable), instance(2, "a", ofPool), instance(10, "b")},
			limits: Limits{Namespace: 1}, reasons: map[string]string{"0002": "starts", "0010": "starts"},
		},
		"prepared ones start last, and not while a player waits": {
			all: []Instance{instance(1, "a", ofPool), instance(9, "c", started), instance(10, "b"), instance(11, "b", ofCheck)}, limits: Limits{All: 1},
			reasons: map[string]string{"0001": string(Full), "0010": string(Full), "0011": string(Full)},
		},
		"for each player who waits one ends, not ready ones first, then the youngest": {
			all:    []Instance{instance(1, "a", claimable), instance(2, "a", claimable), instance(3, "a", ofPool, started), instance(10, "b"), instance(11, "b")},
			limits: Limits{All: 3}, drained: []string{"0002", "0003"},
		},
		"one that ends already counts": {
			all:    []Instance{instance(1, "a", claimable), instance(2, "a", claimable, ending), instance(10, "b")},
			limits: Limits{All: 2}, drained: nil,
		},
		"a limit of its Challenge ends one of that": {
			all: []Instance{instance(1, "b", claimable), instance(2, "a", ofPool, started), instance(10, "a")},
			one: Challenge{MaxInstances: 1}, drained: []string{"0002"},
		},
		"the one that a player takes over does not end, and none for a check": {
			all: []Instance{instance(1, "a", claimable), instance(10, "a"), instance(11, "b", ofCheck)}, limits: Limits{All: 1},
			taken: map[string]string{"0010": "0001"},
		},
		"a claimed one does not end": {
			all: []Instance{instance(1, "a", claimedBy("gone")), instance(10, "b")}, limits: Limits{All: 1},
		},
	} {
		decisions := Decide(tc.all, rules(tc.limits, map[string]Challenge{"a": tc.one}))
		if got := taken(decisions); !maps.Equal(got, tc.taken) {
			t.Errorf("%s: taken over %v, want %v", title, got, tc.taken)
		}
		got := reasons(decisions)
		for name, want := range tc.reasons {
			if reason, decided := got[name]; !decided || reason != want {
				t.Errorf("%s: %s has the reason %q, want %q", title, name, reason, want)
			}
		}
		var drained []string
		for _, i := range Drained(tc.all, decisions) {
			drained = append(drained, i.Key.Name)
		}
		if slices.Sort(drained); !slices.Equal(drained, tc.drained) {
			t.Errorf("%s: drained %v, want %v", title, drained, tc.drained)
		}
	}
}
