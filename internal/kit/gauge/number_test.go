package gauge

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestOnlyTheLeaderReportsANumber(t *testing.T) {
	g := NewNumber("thing_longest_seconds", "Things.")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	shown := func() (values []float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			values = append(values, family.GetMetric()[0].GetGauge().GetValue())
		}
		return values
	}
	elected := make(chan struct{})
	if got := shown(); len(got) > 0 {
		t.Errorf("%v before it was watched", got)
	}
	var err error
	g.Watch(func(context.Context) (float64, error) { return 7, err }, elected)
	if got := shown(); len(got) > 0 {
		t.Errorf("%v by a replica that does not lead", got)
	}
	close(elected)
	if got := shown(); len(got) != 1 || got[0] != 7 {
		t.Errorf("%v by the leader", got)
	}
	err = errors.New("not filled")
	if got := shown(); len(got) > 0 {
		t.Errorf("%v although the value cannot be computed", got)
	}
}

func TestNumbersHaveALabel(t *testing.T) {
	g := NewNumbers("thing_waiting", "Things.", "name")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	elected := make(chan struct{})
	close(elected)
	g.Watch(func(context.Context) (map[string]float64, error) { return map[string]float64{"a": 1, "b": 2}, nil }, elected)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 2 {
		t.Fatalf("%v, %v", families, err)
	}
	for n, m := range families[0].GetMetric() {
		if m.GetGauge().GetValue() != float64(n+1) || m.GetLabel()[0].GetValue() != []string{"a", "b"}[n] {
			t.Errorf("%v", m)
		}
	}
}
