package admission

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Instance is what a decision needs to know of a ChallengeInstance.
type Instance struct {
	UID types.UID
	Key types.NamespacedName
	// Owner is spec.ownerId. Of each owner one instance is started at a time.
	Owner string
	// Source is the label berg.norelect.ch/source: the user or team of a platform. "": none.
	Source string
	// Challenge is the one that the instance names. It need not exist.
	Challenge types.NamespacedName
	Created   time.Time
	// Check: a ChallengeCheck has created it. No player waits for it.
	Check bool
	// Started: it has an instance ID, and its finalizer.
	Started bool
	// Ending: it is being deleted, or is to be.
	Ending bool
	// Blocked: it cannot be built, also without any limit.
	Blocked bool
}

// Waits reports whether the instance is one to be decided about.
func (i Instance) Waits() bool { return !i.Started && !i.Ending && !i.Blocked }

// Decision is what an instance that was not started is to do.
type Decision struct {
	Instance
	// Reason is why it waits; Start when it does not.
	Reason Reason
	// Ahead is, of OwnerBusy, the instance of the same owner right before it. Of hundreds that
	// wait, only the next one has something new to report when that one is gone.
	Ahead types.NamespacedName
}

// Reason is why an instance waits.
type Reason string

// The reasons, in the order in which they are checked.
const (
	// Start: nothing keeps the instance waiting.
	Start Reason = ""
	// OwnerBusy: another instance of the same owner is started, or goes first.
	OwnerBusy Reason = "OwnerBusy"
	// SourceInstances: as many instances of its source are started as Limits.SourceInstances allows.
	SourceInstances Reason = "SourceInstances"
	// SourceBudget: its cost is more than what is left of the budget of its source.
	SourceBudget Reason = "SourceBudget"
	// AboveBudget: its cost alone is above Limits.SourceBudget.
	AboveBudget Reason = "AboveBudget"
	// ChallengeFull: as many instances of its Challenge are started as the Challenge allows.
	ChallengeFull Reason = "ChallengeFull"
	// NamespaceFull: as many instances of its namespace are started as Limits.Namespace allows.
	NamespaceFull Reason = "NamespaceFull"
	// Full: as many instances are started as Limits.All allows.
	Full Reason = "Full"
	// PlayersFirst: it belongs to a check, and a player waits for a slot.
	PlayersFirst Reason = "PlayersFirst"
)

// Decide returns what every instance that waits is to do, in the order in which they may start:
// those of checks after all others, then by creation. A younger instance never gets a slot that an
// older one could use; one that cannot use it, because another limit keeps it, holds up no other.
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
		return cmp.Or(isTrue(a.Check)-isTrue(b.Check), byAge(a, b))
	})
	t := newTally(limits)
	for _, i := range all {
		if i.Started {
			t.add(i)
		}
	}
	ahead := findPredecessors(all, waiting)
	decisions := make([]Decision, 0, len(waiting))
	for _, i := range waiting {
		d := Decision{Instance: i}
		if before, busy := ahead[i.UID]; busy {
			d.Reason, d.Ahead = OwnerBusy, before
		} else {
			d.Reason = t.admit(i)
		}
		decisions = append(decisions, d)
	}
	return decisions
}

// findPredecessors returns, for every instance that waits and is not the first of its owner, the one of that
// owner right before it. What is started goes first, then the oldest.
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
			return cmp.Or(isTrue(b.Started)-isTrue(a.Started), byAge(a, b))
		})
		for n := 1; n < len(same); n++ {
			ahead[same[n].UID] = same[n-1].Key
		}
	}
	return ahead
}

// byAge is the same order on every replica. The name has no influence: the creator of an instance
// chooses it.
func byAge(a, b Instance) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
}

func isTrue(b bool) int {
	if b {
		return 1
	}
	return 0
}
