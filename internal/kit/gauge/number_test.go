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
