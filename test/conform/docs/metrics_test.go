package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	_ "github.com/bergctf/berg-operator/internal/operator" // registers every metric
)

var (
	metricRow  = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| (.*?) ?\\| (.+) \\|$")
	descriptor = regexp.MustCompile(`^Desc\{fqName: "([^"]+)",.*variableLabels: \{([^}]*)\}`)
)

// registered returns the labels of each metric that the operator registers, also
// of those that have no series yet.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	registry, ok := metrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatal("the registry cannot list its metrics")
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descriptions)
		close(descriptions)
	}()
	out := map[string][]string{}
	for d := range descriptions {
		m := descriptor.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		labels := strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(labels)
		out[m[1]] = labels
	}
	return out
}

// metricsPages is the text of the page of the operator's metrics, and of those of each family.
func metricsPages(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, page := range append(glob(t, "docs/*/metrics.md"), "docs/metrics.md") {
		text.Write(read(t, page))
	}
	return text.String()
}

func TestMetricsPageAndOperatorAgree(t *testing.T) {
	actual := registered(t)
	documented := map[string]bool{}
	for _, m := range metricRow.FindAllStringSubmatch(metricsPages(t), -1) {
		name, labels := m[1], strings.FieldsFunc(m[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		slices.Sort(labels)
		documented[name] = true
		have, exists := actual[name]
		switch {
		case !exists:
			t.Errorf("metrics.md: the operator has no metric %s", name)
		case !slices.Equal(have, labels):
			t.Errorf("metrics.md: %s has the labels %v, not %v", name, have, labels)
		}
		if !slices.Contains([]string{"counter", "gauge", "histogram"}, m[2]) {
			t.Errorf("metrics.md: %s: there is no type %q", name, m[2])
		}
	}
	for name := range actual {
		// The metrics of a family begin with the name of its folder.
		prefix, _, _ := strings.Cut(name, "_")
		if slices.Contains(folders(t), prefix) && !documented[name] {
			t.Errorf("no metrics.md lists %s", name)
		}
	}
	if len(documented) < 15 {
		t.Errorf("only %d metrics are documented", len(documented))
	}
}

// TestTypesOfMetrics compares with the metrics that have series already; the
// operator's own have theirs scraped by the integration tests.
func TestTypesOfMetrics(t *testing.T) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	compared := 0
	for _, m := range metricRow.FindAllStringSubmatch(metricsPages(t), -1) {
		if actual := types[m[1]]; actual != "" {
			compared++
			if actual != m[2] {
				t.Errorf("metrics.md: %s is a %s, not a %s", m[1], actual, m[2])
			}
		}
	}
	if compared < 5 {
		t.Errorf("only %d types compared", compared)
	}
}

// A counter that begins with 1 has not increased: an alert about a single time needs a series that was 0 before.
func TestCountersOfAlertsBeginWithZero(t *testing.T) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	begun := map[string]bool{}
	for _, f := range families {
		begun[f.GetName()] = len(f.GetMetric()) > 0
	}
	checked := 0
	for _, path := range append(glob(t, "config/*/prometheus/rules.yaml"), "config/prometheus/rules.yaml") {
		for _, m := range regexp.MustCompile(`increase\(([a-z_]+)[^)]*\)+ > 0\n`).FindAllStringSubmatch(string(read(t, path)), -1) {
			checked++
			if !begun[m[1]] {
				t.Errorf("%s: %s has no series until it is counted for the first time, which the alert then misses", path, m[1])
			}
		}
	}
	if checked < 4 {
		t.Errorf("only %d counters were found", checked)
	}
}

// A cluster without the Prometheus operator refuses its kinds, and the Operator
// Lifecycle Manager then gives the whole installation up.
func TestInstallationNeedsNoPrometheusOperator(t *testing.T) {
	for _, path := range slices.Concat(glob(t, "bundle/manifests/*.yaml"), glob(t, "deploy/packages/*/bundle/manifests/*.yaml"), glob(t, "config/default/*.yaml"), glob(t, "config/operator/*.yaml"), glob(t, "config/manager/*.yaml")) {
		if text := string(read(t, path)); strings.Contains(text, "apiVersion: monitoring.coreos.com") || strings.Contains(text, "../prometheus") {
			t.Errorf("%s brings kinds of the Prometheus operator", path)
		}
	}
}
