package main

import (
	"testing"
	"time"
)

func TestQuantilesAreNearestRanks(t *testing.T) {
	var all []time.Duration
	for n := 100; n >= 1; n-- {
		all = append(all, time.Duration(n)*time.Millisecond)
	}
	q := quantiles(all)
	if q.N != 100 || q.P50 != 50 || q.P90 != 90 || q.P99 != 99 || q.Max != 100 {
		t.Errorf("got %+v", q)
	}
	if len(q.Curve) != 51 || q.Curve[0] != 1 || q.Curve[25] != 50 || q.Curve[50] != 100 {
		t.Errorf("got the curve %v", q.Curve)
	}
	if q := quantiles(all[:1]); q.P50 != 100 || q.P99 != 100 {
		t.Errorf("of one value: %+v", q)
	}
	if q := quantiles(nil); q.N != 0 {
		t.Errorf("of none: %+v", q)
	}
}

func TestMedianOfRounds(t *testing.T) {
	for want, values := range map[float64][]float64{0: nil, 2: {3, 1, 2}, 2.5: {4, 1, 2, 3}} {
		if got := median(values); got != want {
			t.Errorf("median(%v) = %g, want %g", values, got, want)
		}
	}
}

func TestSeriesGroupsByTime(t *testing.T) {
	begin := time.Now()
	var samples []sample
	for n := range 100 {
		took := 10 * time.Millisecond
		if n >= 50 {
			took = time.Second
		}
		samples = append(samples, sample{at: begin.Add(time.Duration(n) * time.Second), took: took})
	}
	points := series(samples, begin, 10)
	if len(points) != 10 || points[0].P50 != 10 || points[9].P99 != 1000 {
		t.Errorf("got %+v", points)
	}
}
