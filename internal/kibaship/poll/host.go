package poll

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// A provider that is down gets no question for firstPause, then for twice as long after each attempt, at most maxPause.
const firstPause, maxPause = 5 * time.Second, time.Minute

// host is what a Poller knows of one provider. The lock of the Poller guards it. The queue gives a key to one worker at a time,
// so a repository never has two questions under way.
type host struct {
	queue workqueue.TypedDelayingInterface[types.NamespacedName]
	// failures is how many questions in a row found the provider down, until when it is asked nothing.
	failures int
	until    time.Time
	waits    Waits
}

func newHost() *host {
	return &host{queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{})}
}

// pausedFor returns for how long the provider gets no question.
func (h *host) pausedFor(now time.Time) time.Duration { return max(0, h.until.Sub(now)) }

// observe counts the result of a question. One repository that fails pauses no provider: as many questions as there are workers must
// fail without a success between them. Those that were under way when a pause began do not prolong it. A success ends the pause
// immediately, so the others of the provider are asked without a further wait.
func (h *host) observe(down bool, now time.Time) {
	switch {
	case !down:
		h.failures, h.until = 0, time.Time{}
	case h.pausedFor(now) == 0:
		h.failures++
		if attempts := h.failures - workers; attempts >= 0 {
			h.until = now.Add(min(firstPause<<min(attempts, 10), maxPause))
		}
	}
}
