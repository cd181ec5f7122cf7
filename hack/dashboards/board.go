package main

import (
	"fmt"
	"strings"
)

// board is a dashboard.
type board struct {
	// folder is that of the family in config/, "" for the process.
	folder string
	// uid is also the name of the file. Links to a dashboard contain it: it stays.
	uid, title, text string
	rows             []row
}

// row is a part of a dashboard with a heading.
type row struct {
	title  string
	panels []panel
}

// panel is a number, or a graph over time.
type panel struct {
	title, text string
	// unit is one of Grafana's, such as s, bytes or short.
	unit string
	// number shows the last value alone.
	number bool
	// stacked graphs are of parts of a whole.
	stacked bool
	queries []query
	// colors are of a number, by the value from which on they hold.
	colors []color
}

type query struct{ expr, legend string }

type color struct {
	name string
	// from is the smallest value. That of the first color has no meaning.
	from float64
}

// of selects the series of a metric that this installation of the operator reports. matchers are those of PromQL.
func of(metric string, matchers ...string) string {
	return metric + "{" + strings.Join(append([]string{`job="$job"`}, matchers...), ",") + "}"
}

// sum adds the series of all replicas, by labels if there are some.
func sum(expr string, by ...string) string { return aggregate("sum", expr, by) }

// highest is the largest value of all replicas, by labels if there are some.
func highest(expr string, by ...string) string { return aggregate("max", expr, by) }

func aggregate(operator, expr string, by []string) string {
	if len(by) == 0 {
		return operator + "(" + expr + ")"
	}
	return operator + " by (" + strings.Join(by, ", ") + ") (" + expr + ")"
}

// rate is of a counter, per second over five minutes.
func rate(metric string, matchers ...string) string {
	return "rate(" + of(metric, matchers...) + "[5m])"
}

// perMinute is the sum of how often a counter goes up in a minute, by labels if there are some.
func perMinute(metric string, by ...string) string { return sum(rate(metric), by...) + " * 60" }

// quantile is of a histogram over 15 minutes, by labels if there are some.
func quantile(q float64, metric string, by ...string) string {
	return fmt.Sprintf("histogram_quantile(%g, %s)", q, sum("rate("+of(metric+"_bucket")+"[15m])", append(by, "le")...))
}

// quantiles are the median and the slowest of a hundred of a histogram.
func quantiles(metric string) []query {
	return []query{{quantile(0.5, metric), "median"}, {quantile(0.99, metric), "p99"}}
}

// byPhase are the two graphs that every kind with phases has.
func byPhase(prefix, what, worrying, hint string) []panel {
	return []panel{
		{title: what + " by phase", text: "All that exist.", unit: "short", stacked: true, queries: []query{
			{sum(of(prefix+"_active"), "phase"), "{{phase}}"},
		}},
		{title: what + ": longest in phase", text: "For each phase: how long the object that entered it first has been in it. " + hint, unit: "s", queries: []query{
			{highest(of(prefix+"_longest_in_phase_seconds", `phase=~"`+worrying+`"`), "phase"), "{{phase}}"},
		}},
	}
}

// kind is what a controller reconciles.
type kind struct{ prefix, name string }

// reconciliations is the row about the work of controllers.
func reconciliations(kinds ...kind) row {
	var done, failed, slow []query
	for _, k := range kinds {
		done = append(done, query{sum(rate(k.prefix + "_reconcile_duration_seconds_count")), k.name})
		failed = append(failed, query{sum(rate(k.prefix + "_reconcile_errors_total")), k.name})
		slow = append(slow, query{quantile(0.99, k.prefix+"_reconcile_duration_seconds"), k.name})
	}
	return row{"Work of the operator", []panel{
		{title: "Reconciliations", text: "How many objects are reconciled per second.", unit: "ops", queries: done},
		{title: "Errors", text: "Reconciliations that failed and are tried again, per second. The operator's log says why.", unit: "ops", queries: failed},
		{title: "Duration of a reconciliation (p99)", text: "A slow API server is the usual reason for long ones.", unit: "s", queries: slow},
	}}
}

// boards returns all dashboards.
func boards() []board {
	return []board{process(), berg(), quix(), hexactf(), tunnel(), kibaship()}
}
