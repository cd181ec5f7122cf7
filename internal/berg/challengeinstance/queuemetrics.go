package challengeinstance

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
)

var (
	queueLength = gauge.NewNumbers("berg_challengeinstance_queue_length",
		"Instances that wait because a limit is reached. Only the leader reports it.", labelChallenge)
	headAge = gauge.NewNumber("berg_challengeinstance_queue_head_seconds",
		"Age of the oldest instance that waits because a limit is reached, 0 if none waits. Only the leader reports it.")
)

func init() { metrics.Registry.MustRegister(queueLength, headAge) }

// queued returns the instances that say that they wait because a limit is reached.
func queued(ctx context.Context, reader client.Reader) ([]bergv1.ChallengeInstance, error) {
	var pending bergv1.ChallengeInstanceList
	if err := reader.List(ctx, &pending, client.MatchingFields{indexPending: isPending}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pending.Items, func(i bergv1.ChallengeInstance) bool {
		return !status.Queued(&i)
	}), nil
}

func observeHeadAge(reader client.Reader, now clock.PassiveClock) func(context.Context) (seconds float64, err error) {
	return func(ctx context.Context) (float64, error) {
		all, err := queued(ctx, reader)
		return maxAge(all, now.Now()).Seconds(), err
	}
}

func maxAge(instances []bergv1.ChallengeInstance, now time.Time) (age time.Duration) {
	for n := range instances {
		age = max(age, now.Sub(instances[n].CreationTimestamp.Time))
	}
	return age
}

// observeQueueLengths returns how many instances wait, by Challenge.
func observeQueueLengths(reader client.Reader) func(context.Context) (map[string]float64, error) {
	return func(ctx context.Context) (map[string]float64, error) {
		all, err := queued(ctx, reader)
		return countByChallenge(all), err
	}
}

// countByChallenge counts by the name of the Challenge. Beyond the bound of the label, the Challenges with the shortest
// queues count together.
func countByChallenge(instances []bergv1.ChallengeInstance) map[string]float64 {
	byName := map[string]float64{}
	for n := range instances {
		byName[instances[n].Spec.ChallengeRef.Name]++
	}
	if len(byName) <= maxChallenges {
		return byName
	}
	type length struct {
		name string
		n    float64
	}
	var all []length
	for name, n := range byName {
		all = append(all, length{name, n})
	}
	slices.SortFunc(all, func(a, b length) int { return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name)) })
	shown := map[string]float64{}
	for i, l := range all {
		name := l.name
		if i >= maxChallenges-1 {
			name = otherChallenges
		}
		shown[name] += l.n
	}
	return shown
}
