package challenge

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
)

// listed is a cache that holds some challenges.
type listed struct {
	client.Reader
	challenges []hexactfv1.Challenge
}

func (l *listed) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*hexactfv1.ChallengeList).Items = l.challenges
	return nil
}

func TestResourceStatus(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(noon)
	challenge := func(name string, uid types.UID, state hexactfv1.State) hexactfv1.Challenge {
		c := testChallenge()
		c.Name, c.UID, c.Status.CurrentStatus.State = name, uid, state
		return *c
	}
	cache := &listed{challenges: []hexactfv1.Challenge{
		challenge("none", "1", hexactfv1.StateNone), challenge("creating", "2", hexactfv1.StateCreating),
		challenge("running", "3", hexactfv1.StateRunning), challenge("error", "4", hexactfv1.StateError),
		challenge("ending", "5", hexactfv1.StateRunning),
	}}
	cache.challenges[4].DeletionTimestamp = &metav1.Time{Time: noon}
	m := newResourceStatus()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	shown := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather() // fails where two series are the same
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.Metric {
				var labels []string
				for _, l := range metric.Label {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
				values[strings.Join(labels, ",")] = metric.Gauge.GetValue()
			}
		}
		return values
	}
	key := func(name string) string {
		return "challeng_id=42,challenge_name=" + name + ",namespace=event,username=alice"
	}
	if got := shown(); len(got) != 0 {
		t.Errorf("before there is a cache: %v", got)
	}
	elected := make(chan struct{})
	m.watch(cache, now, time.Minute, elected)
	if got := shown(); len(got) != 0 {
		t.Errorf("of a replica that does not lead: %v", got)
	}
	close(elected)
	want := map[string]float64{key("none"): 0, key("creating"): 0, key("running"): 1, key("error"): 3, key("ending"): 2}
	if got := shown(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	// Gone, it is reported for a minute, unless there is another one of its name.
	m.deleted(&cache.challenges[4], now.Now())
	m.deleted(&cache.challenges[3], now.Now())
	cache.challenges = []hexactfv1.Challenge{challenge("error", "6", hexactfv1.StateRunning)}
	want = map[string]float64{key("ending"): 2, key("error"): 1}
	now.SetTime(noon.Add(59 * time.Second))
	if got := shown(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	now.SetTime(noon.Add(time.Minute))
	if got := shown(); !maps.Equal(got, map[string]float64{key("error"): 1}) {
		t.Errorf("after a minute: %v", got)
	}
	// The one that came after is not dropped with the one before.
	m.deleted(&cache.challenges[0], now.Now())
	cache.challenges = nil
	if got := shown(); !maps.Equal(got, map[string]float64{key("error"): 2}) {
		t.Errorf("the second one: %v", got)
	}
	// The next process has it all from the cache, and knows nothing of those who are gone.
	cache.challenges = []hexactfv1.Challenge{challenge("running", "3", hexactfv1.StateRunning), challenge("failed", "8", hexactfv1.StateError)}
	m.watch(cache, now, time.Minute, elected)
	if got := shown(); !maps.Equal(got, map[string]float64{key("running"): 1, key("failed"): 3}) {
		t.Errorf("after a restart: %v", got)
	}
	for range maxEnded + 10 {
		c := challenge("many", "7", hexactfv1.StateRunning)
		m.deleted(&c, now.Now())
	}
	if len(m.ended) > maxEnded {
		t.Errorf("%d are remembered", len(m.ended))
	}
}
