package prepull

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
)

// start is a pull that begins.
type start struct {
	Desired *Desired
	Target  Target
}

// next chooses the pulls to start: limit at a time together with the active ones, one on each node,
// in the order in which images are needed. untilRetry is the time until a failed pull is tried
// again; zero for never. A target that waits for its node or for a slot does not hold up later ones on other nodes.
func next(all []Desired, active []Pull, l *store, limit int, now time.Time) (starts []start, untilRetry time.Duration) {
	busy := map[types.UID]bool{}
	for _, p := range active {
		busy[p.Target.Node] = true
	}
	free := limit - len(active)
	for i := range all {
		w := &all[i]
		if w.Blocked != "" {
			continue // the event of its end triggers the next reconciliation
		}
		for _, t := range w.Targets {
			if l.isDone(t) {
				continue
			}
			if f, ok := l.findFailure(attempt{w.Challenge.UID, t}, w.Challenge.Generation); ok {
				retry, retriable := f.again()
				if !retriable {
					continue
				}
				if left := retry.Sub(now); left > 0 {
					untilRetry = status.Sooner(untilRetry, left)
					continue
				}
			}
			if free <= 0 || busy[t.Node] {
				continue // the end of another one triggers the next reconciliation
			}
			free--
			busy[t.Node] = true
			starts = append(starts, start{w, t})
		}
	}
	return starts, untilRetry
}

// needsNamespace reports whether a Challenge still has something to be pulled.
func needsNamespace(w *Desired, l *store) bool {
	for _, t := range w.Targets {
		if l.isDone(t) {
			continue
		}
		f, failed := l.findFailure(attempt{w.Challenge.UID, t}, w.Challenge.Generation)
		if !failed {
			return true
		}
		if _, retriable := f.again(); retriable {
			return true
		}
	}
	return false
}
