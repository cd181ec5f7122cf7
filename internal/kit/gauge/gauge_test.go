package gauge

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestPhases(t *testing.T) {
	noon := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	var err error
	g := NewPhases("thing", "Things", []string{"Ready", "Failed"}, func(context.Context, client.Reader) ([]Observation, error) {
		return []Observation{
			{"Ready", noon.Add(-time.Minute)},
			{"Ready", noon.Add(-time.Hour)},
			{"of another version", noon},
		}, err
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	shown := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		numbers := map[string]float64{}
		for _, family := range families {
			for _, m := range family.Metric {
				numbers[family.GetName()+"/"+m.Label[0].GetName()+"="+m.Label[0].GetValue()] = m.Gauge.GetValue()
			}
		}
		return numbers
	}
	if got := shown(); len(got) != 0 {
		t.Errorf("before there is a cache: %v", got)
	}
	elected := make(chan struct{})
	g.Watch(nil, clocktesting.NewFakePassiveClock(noon), elected)
	if got := shown(); len(got) != 0 {
		t.Errorf("of a replica that does not lead: %v", got)
	}
	close(elected)
	if got, want := shown(), map[string]float64{
		"thing_active/phase=Ready": 2, "thing_active/phase=Failed": 0,
		"thing_max_in_phase_seconds/phase=Ready": 3600, "thing_max_in_phase_seconds/phase=Failed": 0,
	}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	err = errors.New("not filled")
	if got := shown(); len(got) != 0 {
		t.Errorf("though the cache does not answer: %v", got)
	}
}
