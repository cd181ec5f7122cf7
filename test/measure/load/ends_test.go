package main

import (
	"slices"
	"testing"
)

func TestEndFigures(t *testing.T) {
	round := func(operator, bare float64) pair {
		of := func(ms float64) startEnd {
			return startEnd{end: Turn{Latency: map[string]Quantiles{"gone": {P50: ms, P99: ms}}}}
		}
		return pair{theOperator: of(operator), theBare: of(bare)}
	}
	for name, tc := range map[string]struct {
		alone, together []pair
		missed          []string
	}{
		"as fast": {[]pair{round(6000, 6000)}, []pair{round(20000, 20000)}, nil},
		"the median of the rounds counts": {
			[]pair{round(9000, 6000), round(20000, 6000), round(8000, 6000)}, []pair{round(22000, 20000), round(40000, 20000), round(20000, 20000)}, nil,
		},
		"one alone is late":      {[]pair{round(9100, 6000)}, []pair{round(20000, 20000)}, []string{"one alone, time to gone, longer than the bare client's"}},
		"100 together are later": {[]pair{round(6000, 6000)}, []pair{round(22100, 20000)}, []string{"100 together, time to gone, p50", "100 together, time to gone, p99"}},
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
