package challenge

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
)

// resourceStatus is the metric that dashboards use for each challenge. It is computed at each scrape, and so it is right
// after a restart. A challenge that is gone is reported as deleted for METRIC_RETENTION, so that at least one scrape sees
// it, unless another one has its name.
type resourceStatus struct {
	*gauge.Collector

	mu        sync.Mutex
	retention time.Duration
	// ended are challenges that are gone, the oldest first.
	ended []ended
}

type ended struct {
	series  series
	endedAt time.Time
}

// series are the labels of a challenge, in the order of the metric.
type series [4]string

// The values of the metric.
const (
	statusInitialised = iota
	statusRunning
	statusDeleted
	statusError
)

// maxEnded bounds the memory to a few megabytes.
const maxEnded = 20000

func newResourceStatus() *resourceStatus {
	return &resourceStatus{Collector: gauge.NewCollector(prometheus.NewDesc("challenge_resource_status",
		"State of a Challenge: 0 initialised, 1 Running, 2 deleted, 3 Error. A deleted Challenge is reported for METRIC_RETENTION. Only the leader reports it.",
		[]string{"challeng_id", "challenge_name", "username", "namespace"}, nil))}
}

// watch sets the cache that is read at each scrape.
func (m *resourceStatus) watch(reader client.Reader, clk clock.PassiveClock, retention time.Duration, elected <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retention, m.ended = retention, nil
	m.Watch(func(ctx context.Context, report gauge.Report) error { return m.collect(ctx, reader, clk, report) }, elected)
}

// deleted records that a challenge does not exist any more.
func (m *resourceStatus) deleted(c *hexactfv1.Challenge, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	if len(m.ended) >= maxEnded {
		m.ended = append(m.ended[:0], m.ended[1:]...)
	}
	m.ended = append(m.ended, ended{newSeries(c), now})
}

// forget drops the challenges whose retention is over. The caller holds the lock.
func (m *resourceStatus) forget(now time.Time) {
	first := 0
	for first < len(m.ended) && now.Sub(m.ended[first].endedAt) >= m.retention {
		first++
	}
	if first > 0 {
		m.ended = append([]ended(nil), m.ended[first:]...)
	}
}

func newSeries(c *hexactfv1.Challenge) series {
	id := challengeIdentity(c)
	return series{id.ChallengeID, c.Name, id.User, c.Namespace}
}

// statusValue is the value of a challenge that exists.
func statusValue(c *hexactfv1.Challenge) float64 {
	switch state := c.Status.CurrentStatus.State; {
	case c.DeletionTimestamp != nil:
		return statusDeleted
	case state == hexactfv1.StateRunning:
		return statusRunning
	case state == hexactfv1.StateError:
		return statusError
	default:
		return statusInitialised
	}
}

// collect reports the challenges of the cache, and those that have ended recently.
func (m *resourceStatus) collect(ctx context.Context, reader client.Reader, clk clock.PassiveClock, report gauge.Report) error {
	var challenges hexactfv1.ChallengeList
	if err := reader.List(ctx, &challenges, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	values := make(map[series]float64, len(challenges.Items)+len(m.ended))
	m.forget(clk.Now())
	for _, e := range m.ended {
		// A live challenge of the same labels, below, replaces it.
		values[e.series] = statusDeleted
	}
	for i := range challenges.Items {
		values[newSeries(&challenges.Items[i])] = statusValue(&challenges.Items[i])
	}
	for labels, value := range values {
		report(0, value, labels[:]...)
	}
	return nil
}
