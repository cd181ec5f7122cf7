package main

import (
	"slices"
	"testing"
)

func TestEndFigures(t *testing.T) {
	endsAfter := func(operator, bare float64) pair {
		of := func(ms float64) startEnd {
			return startEnd{end: Turn{Latency: map[string]Quantiles{"gone": {P50: ms, P99: ms}}}}
		}
		return pair{theOperator: of(operator), theBare: of(bare)}
	}
	for name, tc := range map[string]struct {
		alone, together []pair
		missed          []string
	}{
		"as fast": {[]pair{endsAfter(6000, 6000)}, []pair{endsAfter(20000, 20000)}, nil},
		"the median of the rounds counts": {
			[]pair{endsAfter(9000, 6000), endsAfter(20000, 6000), endsAfter(8000, 6000)}, []pair{endsAfter(22000, 20000), endsAfter(40000, 20000), endsAfter(20000, 20000)}, nil,
		},
		"one alone is late":      {[]pair{endsAfter(9100, 6000)}, []pair{endsAfter(20000, 20000)}, []string{"one alone, time to gone, longer than the bare client's"}},
		"100 together are later": {[]pair{endsAfter(6000, 6000)}, []pair{endsAfter(22100, 20000)}, []string{"100 together, time to gone, p50", "100 together, time to gone, p99"}},
	} {
		var missed []string
		for _, f := range endFigures(tc.alone, tc.together) {
			if !f.met() {
				missed = append(missed, f.Name)
			}
		}
		if !slices.Equal(missed, tc.missed) {
			t.Errorf("%s: missed %v, want %v", name, missed, tc.missed)
		}
	}
}
