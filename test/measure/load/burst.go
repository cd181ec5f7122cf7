package main

import (
	"context"
	"fmt"
)

// burst creates many together, in several rounds.
//
// What drifts while it lasts, such as the speed of a machine that is not alone on its host,
// affects both turns of a round alike. So the ratio is the median of the rounds' ratios, and
// the two take turns in being first.
func burst(n int) func(context.Context, *bench) (Scenario, error) {
	return func(ctx context.Context, b *bench) (Scenario, error) {
		count := b.rounds
		if n > 100 {
			count = min(count, 1)
		}
		rounds, err := b.pairs(ctx, fmt.Sprintf("burst-%d", n), n, count)
		if err != nil {
			return Scenario{}, err
		}
		return Scenario{Figures: burstFigures(rounds)}, nil
	}
}

// pairs lets each of the two start and end n instances in every round.
func (b *bench) pairs(ctx context.Context, profile string, n, count int) ([]pair, error) {
	rounds := make([]pair, count)
	for i := range rounds {
		rounds[i] = pair{}
	}
	return rounds, inRounds(count, func(i int, who string) error {
		start, end, err := startAndEnd(ctx, b, who, fmt.Sprintf("%s-%d", profile, i+1), n)
		rounds[i][who] = startEnd{start, end}
		return err
	})
}

// pair is one turn of each of the two, by name.
type pair map[string]startEnd

type startEnd struct{ start, end Turn }

func burstFigures(rounds []pair) []Figure {
	throughput := compareRounds("throughput, creation to Starting", "instances per second", rounds,
		func(t startEnd) float64 { return t.start.Throughput })
	throughput.Target, throughput.HigherIsBetter = atLeast(0.85), true
	figures := []Figure{throughput}
	for _, state := range []struct {
		name string
		of   func(startEnd) Quantiles
	}{
		{"starting", func(t startEnd) Quantiles { return t.start.Latency["starting"] }},
		{"running", func(t startEnd) Quantiles { return t.start.Latency["running"] }},
		{"gone", func(t startEnd) Quantiles { return t.end.Latency["gone"] }},
	} {
		figures = append(figures,
			compareRounds("time to "+state.name+", p50", "ms", rounds, func(t startEnd) float64 { return state.of(t).P50 }),
			compareRounds("time to "+state.name+", p99", "ms", rounds, func(t startEnd) float64 { return state.of(t).P99 }))
	}
	api := compareRounds("CPU of the API server, creation to Running", "ms for each instance", rounds,
		func(t startEnd) float64 { return perInstance(t.start, "kube-apiserver") })
	own := Figure{
		Name: "CPU of the operator, creation to Running", Unit: "ms for each instance",
		Operator: medianOf(rounds, func(p pair) float64 { return perInstance(p[theOperator].start, "operator") }),
	}
	last := rounds[len(rounds)-1][theOperator]
	return append(append(figures, api, own), counted(last.start, last.end)...)
}

// compareRounds returns a figure of the medians of both, and of that of the rounds' ratios.
func compareRounds(name, unit string, rounds []pair, of func(startEnd) float64) Figure {
	value := func(who string) float64 {
		return medianOf(rounds, func(p pair) float64 { return of(p[who]) })
	}
	f := compare(name, unit, value(theOperator), value(theBare), nil)
	if f.Ratio != nil {
		ratio := medianOf(rounds, func(p pair) float64 { return of(p[theOperator]) / of(p[theBare]) })
		f.Ratio = &ratio
	}
	return f
}
