package monitoring

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

const job = `job="berg-operator-controller-manager-metrics"`

// alertTest is what raises an alert and what does not.
type alertTest struct {
	fires  [][]string // each must raise the alert
	silent [][]string // none may raise any alert
	others []string   // alerts that rightly come along
}

// part is what a file of this package says of the alerts of a family, or of the process.
type part struct {
	// healthy are its series on a busy day when all is well.
	healthy func() []string
	// alerts are the tests of its alerts, by their names.
	alerts func() map[string]alertTest
}

var parts []part

// add adds a part. A file does so for itself: see process_test.go.
func add(p part) bool {
	parts = append(parts, p)
	return true
}

// healthy is a cluster on a busy day: two replicas, a hundred instances, a few
// starts and ends each minute, now and then an error. One value a minute, for an
// hour and a half; "0+3x90" rises by three each minute.
func healthy() []string {
	var all []string
	for _, p := range parts {
		all = append(all, p.healthy()...)
	}
	return all
}

// histogram are the series of a histogram that gets a number of observations
// each minute, all just below a bound.
func histogram(name, labels, bound string, perMinute float64) []string {
	if labels != "" {
		labels = "," + labels
	}
	series := []string{fmt.Sprintf(`%s_count{%s,instance="a"%s} 0+%gx90`, name, job, labels, perMinute)}
	reached := false
	for _, le := range []string{"0.1", "0.5", "1", "5", "10", "30", "60", "120", "300", "600", "+Inf"} {
		reached = reached || le == bound
		step := 0.0
		if reached {
			step = perMinute
		}
		series = append(series, fmt.Sprintf(`%s_bucket{%s,instance="a"%s,le="%s"} 0+%gx90`, name, job, labels, le, step))
	}
	return series
}

// with returns series in which those of some names are replaced.
func with(series []string, replacements ...string) []string {
	replaced := map[string]bool{}
	for _, r := range replacements {
		replaced[identity(r)] = true
	}
	out := replacements
	for _, s := range series {
		if !replaced[identity(s)] {
			out = append(out, s)
		}
	}
	return out
}

func without(series []string, names ...string) []string {
	var out []string
	for _, s := range series {
		gone := false
		for _, n := range names {
			gone = gone || strings.HasPrefix(s, n)
		}
		if !gone {
			out = append(out, s)
		}
	}
	return out
}

// identity is the name and the labels of a series.
func identity(s string) string { return s[:strings.Index(s, "}")+1] }

func TestNoAlertOnAHealthyDay(t *testing.T) {
	if got := firing(t, healthy(), 90*time.Minute); len(got) > 0 {
		t.Errorf("alerts fire: %v", got)
	}
}

func TestAlerts(t *testing.T) {
	tests := map[string]alertTest{}
	for _, p := range parts {
		maps.Copy(tests, p.alerts())
	}
	for _, r := range rules(t) {
		if _, tested := tests[r.Alert]; !tested {
			t.Errorf("alert %s has no test", r.Alert)
		}
	}
	for alert, test := range tests {
		t.Run(alert, func(t *testing.T) {
			if len(test.fires) == 0 || len(test.silent) == 0 {
				t.Fatal("needs series that fire and series that do not")
			}
			for i, series := range test.fires {
				got := firing(t, series, 90*time.Minute)
				if !got[alert] {
					t.Errorf("case %d: does not fire; these do: %v", i, got)
				}
				delete(got, alert)
				for _, o := range test.others {
					delete(got, o)
				}
				if len(got) > 0 {
					t.Errorf("case %d: these fire too: %v", i, got)
				}
			}
			for i, series := range test.silent {
				if got := firing(t, series, 90*time.Minute); len(got) > 0 {
					t.Errorf("silent case %d: these fire: %v", i, got)
				}
			}
		})
	}
}
