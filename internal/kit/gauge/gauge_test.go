package gauge

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestGauge(t *testing.T) {
	var err error
	g := New("things", "Things that exist.", "phase", func(context.Context, client.Reader) (map[string]int, error) {
		return map[string]int{"Ready": 2, "Failed": 0}, err
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	shown := func() map[string]float64 {
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
	g.Read(nil)
	if got, want := shown(), map[string]float64{"things/phase=Ready": 2, "things/phase=Failed": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	err = errors.New("not filled")
	if got := shown(); len(got) != 0 {
		t.Errorf("though the cache does not answer: %v", got)
	}
}
