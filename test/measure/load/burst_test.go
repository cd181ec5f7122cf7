package main

import "testing"

func TestTheRatioOfABurstIsTheMedianOfItsRounds(t *testing.T) {
	rate := func(operator, bare float64) pair {
		return pair{theOperator: startEnd{start: Turn{Throughput: operator}}, theBare: startEnd{start: Turn{Throughput: bare}}}
	}
	// The machine loses half of its speed after the first pair.
	f := compareRounds("throughput", "", []pair{rate(18, 20), rate(9, 10), rate(9.1, 10)}, func(t startEnd) float64 { return t.start.Throughput })
	if f.Operator != 9.1 || *f.Bare != 10 || *f.Ratio != 0.9 {
		t.Errorf("operator %g, bare client %g, ratio %g", f.Operator, *f.Bare, *f.Ratio)
	}
}

func TestABurstWithoutValuesHasNoRatio(t *testing.T) {
	for _, f := range burstFigures([]pair{{theOperator: {}, theBare: {}}}) {
		if f.Ratio != nil {
			t.Errorf("%s has the ratio %g", f.Name, *f.Ratio)
		}
	}
}
