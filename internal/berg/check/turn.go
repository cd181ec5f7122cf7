package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
)

// contender is a ChallengeCheck among the others.
type contender struct {
	UID types.UID
	// Challenge that it is of.
	Challenge types.NamespacedName
	// Running: its check is being made.
	Running bool
	// Due is since when its check has been to be made; zero if it is not, or cannot be.
	Due time.Time
}

// turn tells why a ChallengeCheck has to wait for others, "" if it need not. Those that have
// been due longest go first, limit at a time, and one of each Challenge.
func turn(all []contender, self types.UID, limit int) (wait string) {
	busy := map[types.NamespacedName]bool{}
	free := limit
	var line []contender
	for _, c := range all {
		switch {
		case c.Running:
			busy[c.Challenge] = true
			free--
		case !c.Due.IsZero():
			line = append(line, c)
		}
	}
	slices.SortFunc(line, func(a, b contender) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.UID, b.UID))
	})
	for _, c := range line {
		switch {
		case busy[c.Challenge]:
			wait = "Another check of this Challenge is being made, or comes first"
		case free <= 0:
			wait = fmt.Sprintf("As many checks are being made at a time as CHECK_CONCURRENCY (%d) allows", limit)
		default:
			wait = ""
			free--
			busy[c.Challenge] = true
		}
		if c.UID == self {
			return wait
		}
	}
	return wait
}

// waitsForRoom reports whether an instance is that of a player, who waits because no node has
// room for a pod of it, or because as many instances exist as may.
func waitsForRoom(i *bergv1.ChallengeInstance) bool {
	if i.DeletionTimestamp != nil || i.Labels[bergv1.LabelCheck] != "" || i.Status.ReadyAt != nil {
		return false
	}
	return challengeinstance.Queued(i) || reasonOf(i, bergv1.ConditionPodsReady) == unschedulable
}
