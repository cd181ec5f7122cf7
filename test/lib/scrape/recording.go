package scrape

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Recording is what was scraped at equal intervals, as a Prometheus would have stored it.
type Recording struct {
	// Begin is the time of the first scrape.
	Begin time.Time
	// Interval is between two scrapes.
	Interval time.Duration
	// Keep says whether series of a name are kept; nil keeps all.
	Keep func(name string) bool

	scrapes int
	series  map[string][]float64 // by their text, NaN where a scrape had none
}

// Next begins the next scrape.
func (r *Recording) Next() { r.scrapes++ }

// Add puts what one target answered into the present scrape. Labels are those of the target: they replace labels of the same
// name.
func (r *Recording) Add(m Metrics, target model.LabelSet) {
	if r.series == nil {
		r.series = map[string][]float64{}
	}
	for _, sample := range m {
		if r.Keep != nil && !r.Keep(string(sample.Metric[model.MetricNameLabel])) {
			continue
		}
		labels := sample.Metric.Clone()
		for name, value := range target {
			labels[name] = value
		}
		text := labels.String()
		values := r.series[text]
		for len(values) < r.scrapes {
			values = append(values, math.NaN())
		}
		values[r.scrapes-1] = float64(sample.Value)
		r.series[text] = values
	}
}

// WriteTo writes a header, and each series in a line of the notation of promtool's tests, in alphabetical order. Values have
// three decimals at most.
func (r *Recording) WriteTo(w io.Writer) (int64, error) {
	out := bufio.NewWriter(w)
	written, err := fmt.Fprintf(out, "# from %s every %s for %s\n", r.Begin.UTC().Format(time.RFC3339), r.Interval, time.Duration(r.scrapes-1)*r.Interval)
	for _, text := range slices.Sorted(maps.Keys(r.series)) {
		if err != nil {
			break
		}
		var n int
		n, err = fmt.Fprintf(out, "%s %s\n", text, r.notation(r.series[text]))
		written += n
	}
	if err == nil {
		err = out.Flush()
	}
	return int64(written), err
}

// notation shortens equal values that follow each other. A series that ended is marked, as by a Prometheus.
func (r *Recording) notation(values []float64) string {
	var words []string
	for i := 0; i < r.scrapes; {
		word, n := at(values, i), 1
		for i+n < r.scrapes && at(values, i+n) == word {
			n++
		}
		switch {
		case word == "_" && i > 0 && n == 1:
			words = append(words, "stale")
		case word == "_" && i > 0:
			words = append(words, "stale", fmt.Sprintf("_x%d", n-1))
		case word == "_":
			words = append(words, fmt.Sprintf("_x%d", n))
		case n == 1:
			words = append(words, word)
		default:
			words = append(words, fmt.Sprintf("%sx%d", word, n-1))
		}
		i += n
	}
	return strings.Join(words, " ")
}

func at(values []float64, i int) string {
	if i >= len(values) || math.IsNaN(values[i]) {
		return "_"
	}
	text := strconv.FormatFloat(values[i], 'f', 3, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
