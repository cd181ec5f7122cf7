package admission

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Instance has the fields of a ChallengeInstance that a decision needs.
type Instance struct {
	UID types.UID
	Key types.NamespacedName
	// Owner is spec.ownerId. An owner has one started instance at a time.
	Owner string
	// Source is the label berg.norelect.ch/source: the user or team of a platform. "": none.
	Source string
	// Challenge names the Challenge of the instance. It need not exist.
	Challenge types.NamespacedName
	Created   time.Time
	// Trusted: it is in a namespace of the platform, to which owner IDs belong.
	Trusted bool
	// Check: a ChallengeCheck has created it. No player waits for it.
	Check bool
	// Prepared: the operator made it for players to come.
	Prepared bool
	// Claimable: it is prepared, and an instance of its Challenge can take it over.
	Claimable bool
	// ClaimedBy is the instance that takes over this prepared one; empty for none.
	ClaimedBy types.UID
	// Started: it has an instance ID, and its finalizer.
	Started bool
	// Ending: it is being deleted, or is to be.
	Ending bool
	// Blocked: it cannot be built, also without any limit.
	Blocked bool
}

// Waits reports whether a decision about the instance is needed.
func (i Instance) Waits() bool { return !i.Started && !i.Ending && !i.Blocked }

// Decision is the result for an instance that was not started.
type Decision struct {
	Instance
	// Reason is the cause for which the instance waits; Start if it does not wait.
	Reason Reason
	// Ahead is set if the Reason is OwnerBusy: the instance directly before it, of the same owner. Only one waiting
	// instance names a given instance, so the end of an instance changes one status and not hundreds.
	Ahead types.NamespacedName
	// TakesOver is the prepared instance that it starts with; empty for none.
	TakesOver types.NamespacedName
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
	// SourceBudget: its cost exceeds the remaining budget of its source.
	SourceBudget Reason = "SourceBudget"
	// AboveBudget: its cost alone is above Limits.SourceBudget.
	AboveBudget Reason = "AboveBudget"
	// ChallengeFull: as many instances of its Challenge are started as the Challenge allows.
	ChallengeFull Reason = "ChallengeFull"
	// NamespaceFull: as many instances of its namespace are started as Limits.Namespace allows.
	NamespaceFull Reason = "NamespaceFull"
	// Full: as many instances are started as Limits.All allows.
	Full Reason = "Full"
	// PlayersFirst: it belongs to a check, or is prepared, and a player waits for a slot.
	PlayersFirst Reason = "PlayersFirst"
)

// byAge is the same order on every replica. Names have no influence: the creator of an instance chooses its name.
func byAge(a, b Instance) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
}

func isTrue(b bool) int {
	if b {
		return 1
	}
	return 0
}
