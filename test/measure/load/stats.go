package main

import (
	"math"
	"slices"
	"time"
)

// Quantiles sum up durations, in milliseconds.
type Quantiles struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	// Curve has every second percentile from 0 to 100.
	Curve []float64 `json:"curve,omitempty"`
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
	q := Quantiles{N: len(ms), P50: rank(ms, 50), P90: rank(ms, 90), P99: rank(ms, 99), Max: ms[len(ms)-1]}
	for p := 0.0; p <= 100; p += 2 {
		q.Curve = append(q.Curve, rank(ms, p))
	}
	return q
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

// sample is how long one instance took, and when it was created.
type sample struct {
	at   time.Time
	took time.Duration
}

// series sums samples up in at most slices parts of equal length.
func series(samples []sample, begin time.Time, parts int) []Point {
	var last time.Duration
	for _, s := range samples {
		last = max(last, s.at.Sub(begin))
	}
	width := max(last/time.Duration(parts)+1, 10*time.Millisecond)
	buckets := make([][]time.Duration, parts+1)
	for _, s := range samples {
		at := max(s.at.Sub(begin), 0) / width
		buckets[at] = append(buckets[at], s.took)
	}
	var points []Point
	for i, b := range buckets {
		if len(b) == 0 {
			continue
		}
		q := quantiles(b)
		points = append(points, Point{Second: round((time.Duration(i)*width + width/2).Seconds(), 2), P50: q.P50, P99: q.P99})
	}
	return points
}
