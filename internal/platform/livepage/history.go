package livepage

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/bergctf/berg-operator/internal/berg/view"
)

const (
	// sampleInterval is one point of the plots.
	sampleInterval = time.Minute
	// maxSamples is a day.
	maxSamples = 24 * 60
)

// Sample is one minute of the history.
type Sample struct {
	At time.Time
	// Running, Waiting (including Starting) and Failed are the numbers at its end.
	Running, Waiting, Failed int
	// Starts, Ends and Failures are the numbers within it.
	Starts, Ends, Failures int
	// ToRunning is the median time from creation to Running of the instances that became ready within it; 0 if there is
	// none.
	ToRunning time.Duration
}

// history has the samples of one namespace, and the counts since the last sample. It is in the memory of one replica, and begins
// again with it.
type history struct {
	samples                []Sample
	starts, ends, failures int
	times                  []time.Duration
}

// count adds a change to the counts. before is nil for a new instance.
func (h *history) count(before, after *Row) {
	if before == nil {
		h.starts++
	}
	if after.State == view.Failed && (before == nil || before.State != view.Failed) {
		h.failures++
	}
	if !after.Ready.IsZero() && (before == nil || before.Ready.IsZero()) {
		h.times = append(h.times, after.Ready.Sub(after.Created))
	}
}

// sample moves the counters since the last sample into a new one, and drops the oldest beyond maxSamples.
func (h *history) sample(now time.Time, counts map[view.State]int) {
	slices.Sort(h.times)
	h.samples = append(h.samples, Sample{
		At: now, Running: counts[view.Running], Waiting: counts[view.Waiting] + counts[view.Starting], Failed: counts[view.Failed],
		Starts: h.starts, Ends: h.ends, Failures: h.failures, ToRunning: view.Quantile(h.times, 50),
	})
	if len(h.samples) > maxSamples {
		h.samples = slices.Delete(h.samples, 0, len(h.samples)-maxSamples)
	}
	h.starts, h.ends, h.failures, h.times = 0, 0, 0, nil
}

// The size of a plot, in units of its own.
const plotWidth, plotHeight = 240.0, 48.0

// plot draws one line of the history. Its text has numbers alone.
func plot(samples []Sample, value func(Sample) float64) template.HTML {
	highest := 0.0
	for _, s := range samples {
		highest = max(highest, value(s))
	}
	var line strings.Builder
	for n, s := range samples {
		x, y := plotWidth, plotHeight
		if len(samples) > 1 {
			x = plotWidth * float64(n) / float64(len(samples)-1)
		}
		if highest > 0 {
			y = plotHeight - (plotHeight-2)*value(s)/highest
		}
		fmt.Fprintf(&line, "%.1f,%.1f ", x, y)
	}
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" preserveAspectRatio="none" aria-hidden="true"><polyline points="%s"/></svg>`, //nolint:gosec // numbers
		plotWidth, plotHeight, strings.TrimSpace(line.String())))
}

// Plot is a plot on the page.
type Plot struct {
	Title string
	// Now and Most are the last and the highest value.
	Now, Most string
	SVG       template.HTML
}

// plots draws the history, nil while it has no sample.
func plots(samples []Sample) (all []Plot) {
	if len(samples) == 0 {
		return nil
	}
	number := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	seconds := func(v float64) string { return fmt.Sprintf("%.1f s", v) }
	for _, line := range []struct {
		title string
		text  func(float64) string
		value func(Sample) float64
	}{
		{"running", number, func(s Sample) float64 { return float64(s.Running) }},
		{"waiting and starting", number, func(s Sample) float64 { return float64(s.Waiting) }},
		{"failed", number, func(s Sample) float64 { return float64(s.Failed) }},
		{"starts a minute", number, func(s Sample) float64 { return float64(s.Starts) }},
		{"ends a minute", number, func(s Sample) float64 { return float64(s.Ends) }},
		{"failures a minute", number, func(s Sample) float64 { return float64(s.Failures) }},
		{"time to running", seconds, func(s Sample) float64 { return s.ToRunning.Seconds() }},
	} {
		now, peak := 0.0, 0.0
		for _, s := range samples {
			now = line.value(s)
			peak = max(peak, now)
		}
		all = append(all, Plot{line.title, line.text(now), line.text(peak), plot(samples, line.value)})
	}
	return all
}
