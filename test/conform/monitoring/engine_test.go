package monitoring

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"sigs.k8s.io/yaml"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// interval is that of the evaluation of rules, and of the scrapes.
const interval = time.Minute

var (
	promQL = parser.NewParser(parser.Options{})
	engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: promQL})
)

// rules returns the alerts as Prometheus itself reads them.
func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	var all []rulefmt.Rule
	for _, path := range ruleFiles(t) {
		var manifest monitoringv1.PrometheusRule
		strict(t, path, &manifest)
		// What the Prometheus operator hands to Prometheus is the spec as it stands.
		file, err := yaml.Marshal(manifest.Spec)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, parse(t, path, file)...)
	}
	if len(all) < 5 {
		t.Fatalf("only %d rules found", len(all))
	}
	return all
}

// ruleFiles are the alerts of the process, and of each family.
func ruleFiles(t *testing.T) []string {
	t.Helper()
	return append(glob(t, "config/*/prometheus/rules.yaml"), "config/prometheus/rules.yaml")
}

func parse(t *testing.T, path string, file []byte) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(file, false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatalf("Prometheus refuses %s: %v", path, errs)
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// firing evaluates all alerts each minute, as Prometheus does, and returns those
// that fired at some time. The series are in the notation of promtool's tests.
func firing(t *testing.T, series []string, until time.Duration) map[string]bool {
	t.Helper()
	fired := map[string]bool{}
	data := memory(t, series)
	for _, rule := range rules(t) {
		since := map[string]time.Duration{} // by the labels of the result
		for at := time.Duration(0); at <= until; at += interval {
			active := map[string]time.Duration{}
			for _, sample := range ask(t, data, rule.Expr, at) {
				key := sample.Metric.String()
				begun, known := since[key]
				if !known {
					begun = at
				}
				active[key] = begun
				if at-begun >= time.Duration(rule.For) {
					fired[rule.Alert] = true
				}
			}
			since = active
		}
	}
	return fired
}

// query asks for an expression at the end of an hour.
func query(t *testing.T, series []string, expr string) promql.Vector {
	t.Helper()
	return ask(t, memory(t, series), expr, time.Hour)
}

func ask(t *testing.T, data storage.Queryable, expr string, at time.Duration) promql.Vector {
	t.Helper()
	q, err := engine.NewInstantQuery(t.Context(), data, nil, expr, time.Unix(0, 0).Add(at))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	if result.Err != nil {
		t.Fatalf("%s: %v", expr, result.Err)
	}
	vector, err := result.Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return vector
}

// memory keeps series in memory for the engine, one value each minute from 0 on.
func memory(t *testing.T, descriptions []string) storage.Queryable {
	t.Helper()
	return stored(t, descriptions, time.Unix(0, 0), interval)
}

// stored keeps series in memory for the engine, with a value at begin and at intervals from then on.
func stored(t *testing.T, descriptions []string, begin time.Time, interval time.Duration) storage.Queryable {
	t.Helper()
	var all []storage.Series
	for _, d := range descriptions {
		lset, values, err := promQL.ParseSeriesDesc(d)
		if err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		one := promql.Series{Metric: lset}
		for i, v := range values {
			if !v.Omitted {
				one.Floats = append(one.Floats, promql.FPoint{T: begin.UnixMilli() + int64(i)*interval.Milliseconds(), F: v.Value})
			}
		}
		all = append(all, promql.NewStorageSeries(one))
	}
	slices.SortFunc(all, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return storage.QueryableFunc(func(int64, int64) (storage.Querier, error) {
		return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			set := &list{}
			for _, s := range all {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
					set.series = append(set.series, s)
				}
			}
			return set
		}}, nil
	})
}

// list is a storage.SeriesSet of given series.
type list struct {
	series []storage.Series
	next   int
}

func (l *list) Next() bool                        { l.next++; return l.next <= len(l.series) }
func (l *list) At() storage.Series                { return l.series[l.next-1] }
func (l *list) Err() error                        { return nil }
func (l *list) Warnings() annotations.Annotations { return nil }
