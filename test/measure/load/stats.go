package main

import (
	"math"
	"slices"
	"time"
)

// Quantiles sum up durations, in milliseconds.
type Quantiles struct {
	N        int
	P50, P99 float64
}

func quantiles(all []time.Duration) Quantiles {
	if len(all) == 0 {
		return Quantiles{}
	}
	ms := make([]float64, len(all))
	for i, d := range all {
		ms[i] = milliseconds(d)
	}
	slices.Sort(ms)
	return Quantiles{N: len(ms), P50: rank(ms, 50), P99: rank(ms, 99)}
}

// rank returns the p-th percentile of sorted values by the nearest rank.
func rank(sorted []float64, p float64) float64 {
	at := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[max(at, 0)]
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// medianOf returns the median of what all have.
func medianOf[T any](all []T, of func(T) float64) float64 {
	values := make([]float64, len(all))
	for i, one := range all {
		values[i] = of(one)
	}
	return round2(median(values))
}

func milliseconds(d time.Duration) float64 { return round(float64(d)/float64(time.Millisecond), 1) }

func round(v float64, digits int) float64 {
	scale := math.Pow(10, float64(digits))
	return math.Round(v*scale) / scale
}
