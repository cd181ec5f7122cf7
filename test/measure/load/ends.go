package main

import (
	"context"
)

// What an end may cost that keeps instances confined until their last process is gone: the bare client deletes their namespaces
// only, and its processes outlive their network policies.
const (
	maxDelay = 3.0 // seconds, of an instance that ends alone
	maxRatio = 1.1 // of 100 that end together
)

// aloneAndTogether compares from the deletion until all is gone: of one instance, and of many together.
func aloneAndTogether(ctx context.Context, b *bench) (Scenario, error) {
	alone, err := b.pairs(ctx, "ends-1", 1, b.rounds)
	if err != nil {
		return Scenario{}, err
	}
	together, err := b.pairs(ctx, "ends-100", 100, b.rounds)
	if err != nil {
		return Scenario{}, err
	}
	return Scenario{Figures: endFigures(alone, together)}, nil
}

func endFigures(alone, together []pair) []Figure {
	gone := func(t startEnd) float64 { return t.end.Latency["gone"].P50 }
	last := func(t startEnd) float64 { return t.end.Latency["gone"].P99 }
	longer := Figure{
		Name: "one alone, time to gone, longer than the bare client's", Unit: "s", Target: atMost(maxDelay),
		Operator: round2(medianOf(alone, func(p pair) float64 { return (gone(p[theOperator]) - gone(p[theBare])) / 1000 })),
	}
	p50 := compareRounds("100 together, time to gone, p50", "ms", together, gone)
	p99 := compareRounds("100 together, time to gone, p99", "ms", together, last)
	p50.Target, p99.Target = atMost(maxRatio), atMost(maxRatio)
	end := classify(together[len(together)-1][theOperator].end.Requests)
	return []Figure{
		compareRounds("one alone, time to gone", "ms", alone, gone), longer, p50, p99,
		{Name: "writes from deletion to gone", Unit: "for each instance, without events", Operator: end.writes, Target: atMost(5), Count: true},
	}
}
