package admission

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// pool has the prepared instances of a decision.
type pool struct {
	// claimable by Challenge, the oldest first.
	claimable map[types.NamespacedName][]Instance
	// claimed by the instance that takes it over.
	claimed map[types.UID]Instance
	started map[types.UID]bool
}

// newPool sorts prepared instances by age, so that the oldest one is taken first.
func newPool(all []Instance) *pool {
	p := &pool{claimable: map[types.NamespacedName][]Instance{}, claimed: map[types.UID]Instance{}, started: map[types.UID]bool{}}
	for _, i := range all {
		switch {
		case !i.Prepared:
			p.started[i.UID] = i.Started
		// A claimed instance is found by its claimant even while it is being deleted: the claim decides whose namespace it is.
		case i.ClaimedBy != "":
			p.claimed[i.ClaimedBy] = i
		case i.Claimable && !i.Ending:
			p.claimable[i.Challenge] = append(p.claimable[i.Challenge], i)
		}
	}
	for _, same := range p.claimable {
		slices.SortFunc(same, byAge)
	}
	return p
}

// handedOver reports whether an instance is a prepared one whose slot the instance that took it over has by now.
func (p *pool) handedOver(i Instance) bool { return i.Prepared && p.started[i.ClaimedBy] }

// find returns the prepared instance for an instance that waits, nil if there is none. A claim is never changed.
func (p *pool) find(i Instance) *Instance {
	if claimed, ok := p.claimed[i.UID]; ok {
		return &claimed
	}
	if same := p.claimable[i.Challenge]; !i.Prepared && len(same) > 0 {
		return &same[0]
	}
	return nil
}

// A claimed instance is not in the list, so only an offered one is removed: no two instances of a round get the same.
func (p *pool) take(i Instance) {
	if same := p.claimable[i.Challenge]; len(same) > 0 && same[0].UID == i.UID {
		p.claimable[i.Challenge] = same[1:]
	}
}

// Drained returns the prepared instances that have to end, because players wait for their slots: one for each player, unless it is
// ending. Instances that are not ready end first, then the youngest.
func Drained(all []Instance, decisions []Decision) []Instance {
	used := map[types.NamespacedName]bool{}
	for _, d := range decisions {
		used[d.TakesOver] = true
	}
	var spare []Instance
	for _, i := range all {
		if i.Prepared && i.Started && i.ClaimedBy == "" && !used[i.Key] {
			spare = append(spare, i)
		}
	}
	slices.SortFunc(spare, func(a, b Instance) int {
		return cmp.Or(isTrue(b.Ending)-isTrue(a.Ending), isTrue(a.Claimable)-isTrue(b.Claimable), byAge(b, a))
	})
	var drained []Instance
	for _, d := range decisions {
		if d.Prepared || d.Check || d.Reason != Full && d.Reason != ChallengeFull {
			continue
		}
		index := slices.IndexFunc(spare, func(i Instance) bool { return d.Reason == Full || i.Challenge == d.Challenge })
		if index >= 0 {
			// An instance that ends already makes a slot free for this player: no further one has to end.
			if !spare[index].Ending {
				drained = append(drained, spare[index])
			}
			spare = slices.Delete(spare, index, index+1)
		}
	}
	return drained
}
