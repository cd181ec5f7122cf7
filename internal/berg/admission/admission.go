package admission

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Decide returns a decision about every instance that waits, in the order in which they may start: instances of players,
// then of checks, then prepared ones, each by creation. A younger instance never gets a slot that an older one could use; an instance that
// cannot use it, because of another limit, holds up no other. It is called once in a round with a tally of its own: all decisions
// of a round count each other, decisions of two rounds do not. Only the write of a start makes it count for the next round.
func Decide(all []Instance, limits Rules) []Decision {
	var waiting []Instance
	for _, i := range all {
		if i.Waits() {
			waiting = append(waiting, i)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	slices.SortFunc(waiting, func(a, b Instance) int {
		return cmp.Or(isTrue(a.Prepared)-isTrue(b.Prepared), isTrue(a.Check)-isTrue(b.Check), byAge(a, b))
	})
	// Started instances count before any decision, so that a limit which was lowered admits none until enough have ended.
	// Each admitted instance counts for the decisions after it.
	t := newTally(limits)
	pool := newPool(all)
	for _, i := range all {
		// From the start of the player's instance until the prepared one is deleted both exist, and only one namespace.
		if i.Started && !pool.handedOver(i) {
			t.add(i)
		}
	}
	ahead := findPredecessors(all, waiting)
	decisions := make([]Decision, 0, len(waiting))
	for _, i := range waiting {
		d := Decision{Instance: i}
		if before, busy := ahead[i.UID]; busy {
			d.Reason, d.Ahead = OwnerBusy, before
			// An instance that has claimed a prepared one in an earlier round gets the same one here, so that a start that was killed
			// after the claim is completed.
		} else if prepared := pool.find(i); prepared != nil {
			if d.Reason = t.takeOver(i); d.Reason == Start {
				d.TakesOver = prepared.Key
				pool.take(*prepared)
			}
		} else {
			d.Reason = t.admit(i)
		}
		decisions = append(decisions, d)
	}
	return decisions
}

// Displaced returns the started instances that have to end: a trusted instance of the same owner waits. An owner ID is no secret, and
// another namespace could keep the platform's instance waiting with it.
func Displaced(all []Instance) []Instance {
	wanted := map[string]bool{}
	for _, i := range all {
		wanted[i.Owner] = wanted[i.Owner] || i.Trusted && i.Waits()
	}
	var displaced []Instance
	for _, i := range all {
		if wanted[i.Owner] && i.Started && !i.Ending && !i.Trusted {
			displaced = append(displaced, i)
		}
	}
	return displaced
}

// findPredecessors returns, for every instance that waits and is not the first of its owner, the owner's instance directly
// before it. A started instance is first, then trusted ones, then the oldest. A started instance without a successor needs no
// answer, so only owners of waiting instances are sorted.
func findPredecessors(all, waiting []Instance) map[types.UID]types.NamespacedName {
	owners := make(map[string][]Instance, len(waiting))
	for _, i := range waiting {
		owners[i.Owner] = nil
	}
	for _, i := range all {
		if rivals, ok := owners[i.Owner]; ok && (i.Started || i.Waits()) {
			owners[i.Owner] = append(rivals, i)
		}
	}
	ahead := map[types.UID]types.NamespacedName{}
	for _, same := range owners {
		slices.SortFunc(same, func(a, b Instance) int {
			return cmp.Or(isTrue(b.Started)-isTrue(a.Started), isTrue(b.Trusted)-isTrue(a.Trusted), byAge(a, b))
		})
		for n := 1; n < len(same); n++ {
			ahead[same[n].UID] = same[n-1].Key
		}
	}
	return ahead
}
