package warm

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bergctf/berg-operator/internal/berg/plan"
)

// Pool has the prepared instances of one Challenge.
type Pool struct {
	Challenge types.NamespacedName
	// Min, Max and MaxInstances are fields of the Challenge; zero is no bound. Min is zero if none may be prepared.
	Min, Max, MaxInstances int
	// Frozen: none is created, and outdated ones stay.
	Frozen bool
	// Players is the number of instances of players that have started or take one over. One that waits takes over a prepared one
	// or gets its slot, so it must not end it.
	Players  int
	Prepared []Prepared
}

// Prepared is a prepared instance.
type Prepared struct {
	UID types.UID
	// Age orders them: the larger, the older.
	Age int64
	// Claimable: an instance can take it over.
	Claimable bool
	// Stuck: it does not become claimable by waiting, because of its image or program, for example.
	Stuck bool
	// Outdated: its Challenge, an image or a setting has changed.
	Outdated bool
	// Bound: an instance takes it over, or it is being deleted.
	Bound bool
}

// Change is what a decision changes in one Pool.
type Change struct {
	// Wanted is the number of prepared instances within all limits.
	Wanted int
	Create int
	Delete []types.UID
}

// Limits bound all pools together.
type Limits struct {
	// Instances bounds all prepared instances. Starting bounds instances that start at the same time, and Create the new ones.
	Instances, Starting, Create int
	// Starved is the number of instances of players whose pods find no node: each gets the capacity of a prepared instance, and
	// none is created.
	Starved int
}

// Decide returns a change for each pool.
func Decide(pools []Pool, limits Limits) []Change {
	changes := make([]Change, len(pools))
	for n, count := range share(pools, limits.Instances) {
		changes[n].Wanted = count
	}
	starting := 0
	unready := make([]int, len(pools)) // stuck ones hold up their own Challenge, and no other
	kept := make([][]Prepared, len(pools))
	for n, p := range pools {
		kept[n], changes[n].Delete = keep(p, changes[n].Wanted)
		for _, i := range kept[n] {
			if !i.Claimable {
				unready[n]++
				if !i.Stuck {
					starting++
				}
			}
		}
	}
	// Nothing is created in the same round: the scheduler gives a node to the first pod that asks, which may be the new one.
	if limits.Starved > 0 {
		giveUp(pools, kept, changes, limits.Starved)
		return changes
	}
	left := limits.Create
	// One for each Challenge and loop, so that the limit of this round does not go to the first Challenge alone.
	for created := true; created; {
		created = false
		for n, p := range pools {
			if c := &changes[n]; !p.Frozen && len(kept[n])+c.Create < c.Wanted && left > 0 && max(starting, unready[n]) < limits.Starting {
				c.Create++
				left--
				unready[n]++
				starting++
				created = true
			}
		}
	}
	return changes
}

// share distributes the limit evenly among the Challenges, until all have their minimum within their own bounds.
func share(pools []Pool, limit int) []int {
	wanted := make([]int, len(pools))
	for n, p := range pools {
		wanted[n] = p.Min
		for _, bound := range []int{p.Max, p.MaxInstances} {
			if bound > 0 {
				wanted[n] = min(wanted[n], max(0, bound-p.Players))
			}
		}
	}
	return plan.Share(wanted, limit)
}

// keep returns the instances that are kept, and those that are deleted: outdated ones, then those beyond the wanted number, the
// ready ones last. Outdated ones of a frozen Challenge stay: the freeze may end with the content that they have. Bound instances
// are neither kept nor deleted: they are a player's, or on their way out, and free no slot by a decision here.
func keep(p Pool, wanted int) (kept []Prepared, deleted []types.UID) {
	for _, i := range p.Prepared {
		switch {
		case i.Bound:
		case i.Outdated && !p.Frozen:
			deleted = append(deleted, i.UID)
		default:
			kept = append(kept, i)
		}
	}
	slices.SortFunc(kept, bestFirst)
	for _, i := range kept[min(len(kept), wanted):] {
		deleted = append(deleted, i.UID)
	}
	return kept[:min(len(kept), wanted)], deleted
}

// bestFirst orders by readiness, then by age.
func bestFirst(a, b Prepared) int {
	return cmp.Or(cmp.Compare(asNumber(b.Claimable), asNumber(a.Claimable)), cmp.Compare(b.Age, a.Age), cmp.Compare(a.UID, b.UID))
}

func asNumber(b bool) int {
	if b {
		return 1
	}
	return 0
}

// giveUp deletes as many instances as players need, from the largest pools. Those that are being deleted count. A pod of a player
// needs a node now, and one prepared instance is what the operator can free. Each ended instance leads to an event and to another
// round, which counts again.
func giveUp(pools []Pool, kept [][]Prepared, changes []Change, needed int) {
	for n, p := range pools {
		needed -= len(p.Prepared) - len(kept[n])
	}
	for ; needed > 0; needed-- {
		largest := -1
		for n := range kept {
			if len(kept[n]) > 0 && (largest < 0 || len(kept[n]) > len(kept[largest])) {
				largest = n
			}
		}
		if largest < 0 {
			return
		}
		last := len(kept[largest]) - 1
		changes[largest].Delete = append(changes[largest].Delete, kept[largest][last].UID)
		kept[largest] = kept[largest][:last]
	}
}

// pace is the time between two instances that are prepared while players come, at least one in this time. Otherwise their starts share
// the API server with what replaces prepared instances, and take half as long again.
const pace = time.Second

// untilNext returns how long no instance is prepared, because the last player and the last prepared instance have come a moment ago.
func untilNext(now, playerCame, prepared time.Time) time.Duration {
	if now.Sub(playerCame) >= pace {
		return 0
	}
	return max(0, prepared.Add(pace).Sub(now))
}
