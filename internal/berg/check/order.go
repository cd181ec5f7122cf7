package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
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

// waitReason returns why a ChallengeCheck has to wait for others, "" if it need not. Those that have
// been due longest go first, limit at a time, and one of each Challenge.
func waitReason(all []contender, uid types.UID, limit int) (wait string) {
	busy := map[types.NamespacedName]bool{}
	free := limit
	var queued []contender
	for _, c := range all {
		switch {
		case c.Running:
			busy[c.Challenge] = true
			free--
		case !c.Due.IsZero():
			queued = append(queued, c)
		}
	}
	slices.SortFunc(queued, func(a, b contender) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.UID, b.UID))
	})
	for _, c := range queued {
		switch {
		case busy[c.Challenge]:
			wait = "Another check of this Challenge is running, or comes first"
		case free <= 0:
			wait = fmt.Sprintf("The limit CHECK_CONCURRENCY (%d) of concurrent checks is reached", limit)
		default:
			wait = ""
			free--
			busy[c.Challenge] = true
		}
		if c.UID == uid {
			return wait
		}
	}
	return wait
}

// refusals are those ChallengeChecks of which a check could not be begun: the API server refused to
// note that. For retryDelay they do not wait in the order, where they would be first again and keep all others waiting. The zero value is ready for use, by one worker.
type refusals struct {
	until map[types.UID]time.Time
}

// note keeps one out of the order for retryDelay.
func (s *refusals) note(c *bergv1.ChallengeCheck, now time.Time) {
	if s.until == nil {
		s.until = map[types.UID]time.Time{}
	}
	maps.DeleteFunc(s.until, func(_ types.UID, until time.Time) bool { return !now.Before(until) })
	s.until[c.UID] = now.Add(retryDelay)
}

// holds returns until when one is kept out of the order, zero if it is not.
func (s *refusals) holds(c *bergv1.ChallengeCheck, now time.Time) time.Time {
	if until := s.until[c.UID]; now.Before(until) {
		return until
	}
	return time.Time{}
}

// maxRefusal is how long the API server may refuse what a check consists of before that is the
// result: one that has just started refuses everything for a moment, until it knows the roles.
const maxRefusal = 10 * time.Second

// refusedBuilds is since when the API server refuses the objects of a check, for each ChallengeCheck of which
// it is. The zero value is ready for use, by one worker.
type refusedBuilds struct {
	since map[types.UID]refusedRun
}

type refusedRun struct {
	startedAt, since time.Time
}

// over reports whether a failure to build is the result of the check: always if an object has another owner, and if the
// API server keeps refusing for maxRefusal.
func (p *refusedBuilds) over(c *bergv1.ChallengeCheck, failure error, now time.Time) bool {
	switch cause := outcome.Classify(failure); {
	case cause == outcome.NotOwned:
		return true
	case cause == outcome.Rejected:
		first := p.since[c.UID]
		if startedAt := c.Status.Run.StartedAt.Time; !first.startedAt.Equal(startedAt) {
			if p.since == nil {
				p.since = map[types.UID]refusedRun{}
			}
			first = refusedRun{startedAt, now}
			p.since[c.UID] = first
		}
		return now.Sub(first.since) >= maxRefusal
	case failure == nil:
		p.forget(c)
	}
	return false // what it would have said is not known
}

// forget lets the next refusal of a ChallengeCheck be the first again.
func (p *refusedBuilds) forget(c *bergv1.ChallengeCheck) { delete(p.since, c.UID) }

// maxWait is how long checks leave room for a player whose pods fit on no node. Who has waited
// longer will not get it from them.
const maxWait = 10 * time.Minute

// players are those that wait for capacity.
type players struct {
	Wait bool
	// Named is an instance that waits.
	Named types.NamespacedName
	// Until is when none counts any more, if nothing else happens; zero for never.
	Until time.Time
}

// String says who waits.
func (p players) String() string {
	return fmt.Sprintf("ChallengeInstance %s waits for capacity", p.Named)
}

// waitingPlayers finds who waits for room. It names the same instance as before as long as that one
// waits, else the one that was created last: those before it get room first, and every check that
// waits would tell of each of them.
func waitingPlayers(all []bergv1.ChallengeInstance, before types.NamespacedName, now time.Time) (p players) {
	var newest *bergv1.ChallengeInstance
	queued, same := false, false
	for n := range all {
		i := &all[n]
		if !waitsForCapacity(i) {
			continue
		}
		if !status.Queued(i) {
			until := waitsSince(i).Add(maxWait)
			if !now.Before(until) {
				continue
			}
			if until.After(p.Until) {
				p.Until = until
			}
		}
		p.Wait = true
		queued = queued || status.Queued(i)
		same = same || client.ObjectKeyFromObject(i) == before
		if newest == nil || cmp.Or(i.CreationTimestamp.Compare(newest.CreationTimestamp.Time), cmp.Compare(i.UID, newest.UID)) > 0 {
			newest = i
		}
	}
	switch {
	case same:
		p.Named = before
	case newest != nil:
		p.Named = client.ObjectKeyFromObject(newest)
	}
	if queued {
		p.Until = time.Time{} // a place in the queue is one that comes
	}
	return p
}

// waitsSince is since when an instance that was started has not been ready.
func waitsSince(i *bergv1.ChallengeInstance) (since time.Time) {
	if c := apimeta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionPodsReady); c != nil {
		since = c.LastTransitionTime.Time
	}
	if started := i.Status.StartedAt; started != nil && started.After(since) {
		return started.Time // it may have been in the queue before
	}
	return since
}

// waitsForCapacity reports whether an instance is that of a player, who waits because no node has
// room for a pod of it, or because as many instances exist as may.
func waitsForCapacity(i *bergv1.ChallengeInstance) bool {
	if i.DeletionTimestamp != nil || i.Labels[bergv1.LabelCheck] != "" || i.Status.ReadyAt != nil {
		return false
	}
	return status.Queued(i) || conditionReason(i, bergv1.ConditionPodsReady) == unschedulable
}
