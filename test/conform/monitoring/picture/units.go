package picture

import (
	"fmt"
	"math"
)

// scale are the names of the powers of a unit, from the smallest on.
type scale []struct {
	from float64 // the smallest value that is written so
	by   float64
	name string
}

var (
	numbers = scale{{0, 1, ""}, {1e3, 1e3, " K"}, {1e6, 1e6, " Mil"}}
	seconds = scale{{0, 1e-6, " µs"}, {1e-3, 1e-3, " ms"}, {1, 1, " s"}, {60, 60, " min"}, {3600, 3600, " h"}, {86400, 86400, " d"}}
	octets  = scale{{0, 1, " B"}, {1 << 10, 1 << 10, " KiB"}, {1 << 20, 1 << 20, " MiB"}, {1 << 30, 1 << 30, " GiB"}}
	traffic = scale{{0, 1, " B/s"}, {1e3, 1e3, " kB/s"}, {1e6, 1e6, " MB/s"}, {1e9, 1e9, " GB/s"}}
)

// units are those of Grafana that the dashboards have.
var units = map[string]scale{
	"short": numbers, "s": seconds, "bytes": octets, "Bps": traffic,
	"percentunit": {{0, 0.01, "%"}}, "ops": {{0, 1, " ops/s"}, {1e3, 1e3, "K ops/s"}}, "reqps": {{0, 1, " req/s"}, {1e3, 1e3, "K req/s"}}, "cps": {{0, 1, " c/s"}, {1e3, 1e3, "K c/s"}},
}

// Known says whether there is a unit.
func Known(unit string) bool { return units[unit] != nil }

// Format writes a value as Grafana does, with three digits at most.
func Format(v float64, unit string) string {
	s := units[unit]
	if s == nil {
		s = numbers
	}
	if v == 0 {
		if unit == "s" {
			return "0 s"
		}
		return "0" + s[0].name
	}
	one := s[0]
	for _, next := range s {
		if math.Abs(v) >= next.from*(1-1e-9) {
			one = next
		}
	}
	v /= one.by
	digits := 2
	switch {
	case math.Abs(v) >= 100:
		digits = 0
	case math.Abs(v) >= 10:
		digits = 1
	case math.Abs(v) < 0.1:
		digits = 3
	}
	return trim(fmt.Sprintf("%.*f", digits, v)) + one.name
}

// niceStep is the distance of the lines of a grid, of which there are at most five up to a value.
func niceStep(high float64, unit string) float64 {
	if high <= 0 {
		return 1
	}
	base := 1.0 // the size of what the numbers at the axis count
	for _, s := range units[unit] {
		if high >= s.from {
			base = s.by
		}
	}
	aim := high / base / 4
	power := math.Pow(10, math.Floor(math.Log10(aim)))
	for _, n := range []float64{1, 2, 2.5, 5} {
		if n*power >= aim*(1-1e-9) {
			return n * power * base
		}
	}
	return 10 * power * base
}
