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

// waitReason returns why a ChallengeCheck has to wait for others, "" if it need not. The most
// overdue checks go first, limit at a time, and one for each Challenge. It is computed for each check from the list of all, and
// no order is kept: a check that began is Running in the next list, which waits for the write of its status.
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

// refusals are the ChallengeChecks whose check could not start: the API server refused the status. For retryDelay they do not
// wait in the order, where they would be first again and keep all others waiting. The zero value is ready for use, by one worker.
// A restart forgets them, and the first refusal after it costs one attempt.
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

// maxRefusal is how long the API server may refuse the objects of a check before that is the
// result: an API server that has just started refuses everything for a moment, until it knows the
// roles.
const maxRefusal = 10 * time.Second

// refusedBuilds records since when the API server has refused the objects of a check, by ChallengeCheck. The
// zero value is ready for use, by one worker.
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
	return false // the server did not answer, so nothing is known
}

// forget lets the next refusal of a ChallengeCheck be the first again.
func (p *refusedBuilds) forget(c *bergv1.ChallengeCheck) { delete(p.since, c.UID) }

// maxWait is how long checks leave capacity for a player whose pods fit on no node. A player who
// has waited longer will not get capacity from checks.
const maxWait = 10 * time.Minute

// players are the players that wait for capacity.
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

// waitingPlayers finds players that wait for capacity. It names the same instance as before as long
// as that one waits, else the last one that was created: earlier ones get capacity first, and the
// status of every waiting check would change for each of them.
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
		p.Until = time.Time{} // an instance in the queue will get its slot
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

// waitsForCapacity reports whether an instance of a player waits because no node has capacity for
// one of its pods, or because the maximum number of instances exists.
func waitsForCapacity(i *bergv1.ChallengeInstance) bool {
	if i.DeletionTimestamp != nil || i.Labels[bergv1.LabelCheck] != "" || i.Status.ReadyAt != nil {
		return false
	}
	return status.Queued(i) || conditionReason(i, bergv1.ConditionPodsReady) == unschedulable
}

// retryDelay is how long after a check that was broken off the next one may begin.
const retryDelay = time.Minute

// obstacle says what keeps a check from being made, apart from other checks and players; no
// reason if nothing does.
func obstacle(c *bergv1.ChallengeCheck, challenge *bergv1.Challenge, now time.Time) (reason, message string) {
	next := due(c, challenge)
	switch {
	case c.Spec.Suspend:
		return bergv1.CheckReasonSuspended, "spec.suspend is true: no check runs"
	case challenge == nil:
		return bergv1.ReasonChallengeMissing, fmt.Sprintf("No Challenge %s exists that a ChallengeCheck of this namespace may use: create it, or correct spec.challengeRef or the operator's CHALLENGE_REF_POLICY", c.Spec.ChallengeRef.Name)
	case !dynamic(challenge) && challenge.Spec.Flag == "":
		return bergv1.CheckReasonNoFlag, "The Challenge has no flag: give a container of the Challenge a dynamicFlag, or set the Challenge's spec.flag"
	case next.IsZero():
		return bergv1.CheckReasonIdle, "The next check runs when the Challenge or this ChallengeCheck is changed"
	case next.After(now):
		return bergv1.CheckReasonIdle, "The next check is due at " + next.UTC().Format(time.RFC3339)
	case challenge.Annotations[bergv1.AnnotationFrozen] != "":
		return bergv1.ReasonFrozen, fmt.Sprintf("The Challenge is frozen: the check runs when its annotation %s is removed", bergv1.AnnotationFrozen)
	}
	return "", ""
}

// waiting says what a check that is not being made waits for; no reason if nothing.
func waiting(o Observed, limit int, now time.Time) (reason, message string) {
	if reason, message = obstacle(o.Check, o.Challenge, now); reason != "" {
		return reason, message
	}
	if o.Players.Wait {
		return bergv1.CheckReasonPlayersFirst, fmt.Sprintf("%s, and players go first: the check runs when no player waits", o.Players)
	}
	if !o.RefusedUntil.IsZero() {
		return bergv1.CheckReasonQueued, "The API server refused to let the check begin, as an event says: other checks go first for a minute"
	}
	if wait := waitReason(o.Contenders, o.Check.UID, limit); wait != "" {
		return bergv1.CheckReasonQueued, wait
	}
	return "", ""
}
