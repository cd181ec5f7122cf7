package challengeinstance

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
)

var (
	queueLength = &queueLengths{desc: prometheus.NewDesc("berg_challengeinstance_queue_length",
		"Instances that wait because a limit is reached. Only the leader reports it.", []string{labelChallenge}, nil)}
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
	return slices.DeleteFunc(pending.Items, func(i bergv1.ChallengeInstance) bool { return !status.Queued(&i) }), nil
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

// queueLengths is a collector of how many instances wait, by Challenge.
type queueLengths struct {
	desc   *prometheus.Desc
	source atomic.Pointer[queueSource]
}

type queueSource struct {
	reader  client.Reader
	elected <-chan struct{}
}

func (l *queueLengths) watch(reader client.Reader, elected <-chan struct{}) {
	l.source.Store(&queueSource{reader, elected})
}

// Describe implements prometheus.Collector.
func (l *queueLengths) Describe(ch chan<- *prometheus.Desc) { ch <- l.desc }

// Collect implements prometheus.Collector.
func (l *queueLengths) Collect(ch chan<- prometheus.Metric) {
	s := l.source.Load()
	if s == nil {
		return
	}
	select {
	case <-s.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	all, err := queued(ctx, s.reader)
	if err != nil {
		return // the cache is shutting down
	}
	for name, n := range countByChallenge(all) {
		ch <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, float64(n), name)
	}
}

// countByChallenge counts by the name of the Challenge, those with the longest queues first, and what is
// beyond the bound of the label as one.
func countByChallenge(instances []bergv1.ChallengeInstance) map[string]int {
	byName := map[string]int{}
	for n := range instances {
		byName[instances[n].Spec.ChallengeRef.Name]++
	}
	if len(byName) <= maxChallenges {
		return byName
	}
	type length struct {
		name string
		n    int
	}
	var all []length
	for name, n := range byName {
		all = append(all, length{name, n})
	}
	slices.SortFunc(all, func(a, b length) int { return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name)) })
	shown := map[string]int{}
	for i, l := range all {
		name := l.name
		if i >= maxChallenges-1 {
			name = otherChallenges
		}
		shown[name] += l.n
	}
	return shown
}
