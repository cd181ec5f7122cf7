package monitoring

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// root is the repository, seen from this package.
const root = "../../.."

// runbooks is where those of the installed version are.
func runbooks(t *testing.T) string {
	t.Helper()
	version := regexp.MustCompile(`(?m)^VERSION \?= (\S+)$`).FindSubmatch(read(t, "hack/versions.mk"))
	if version == nil {
		t.Fatal("hack/versions.mk has no version")
	}
	return "https://github.com/bergctf/berg-operator/blob/v" + string(version[1]) + "/docs/runbooks/"
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// strict reads a manifest into the Prometheus operator's own type and fails on a
// field that it does not have.
func strict(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(read(t, path), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestServiceMonitorScrapesTheMetricsService(t *testing.T) {
	var monitor monitoringv1.ServiceMonitor
	strict(t, "config/prometheus/monitor.yaml", &monitor)
	var service struct {
		Metadata struct {
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Spec struct {
			Ports []struct {
				Name string `json:"name"`
			} `json:"ports"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(read(t, "config/manager/metrics_service.yaml"), &service); err != nil {
		t.Fatal(err)
	}
	service.Metadata.Labels["app.kubernetes.io/name"] = "berg-operator" // added by config/operator
	for name, value := range monitor.Spec.Selector.MatchLabels {
		if service.Metadata.Labels[name] != value {
			t.Errorf("the Service has no label %s=%s", name, value)
		}
	}
	if len(monitor.Spec.Endpoints) != 1 || len(service.Spec.Ports) != 1 || monitor.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name {
		t.Error("the ServiceMonitor does not name the Service's port")
	}
	e := monitor.Spec.Endpoints[0]
	if e.Scheme == nil || !strings.EqualFold(string(*e.Scheme), "https") || e.Authorization == nil || e.Authorization.Credentials == nil {
		t.Error("the endpoint must be scraped with TLS and a token")
	}
	for _, r := range rules(t) {
		if strings.Contains(r.Expr, "job=") && !strings.Contains(r.Expr, `job="berg-operator-`+service.Metadata.Name+`"`) && !strings.Contains(r.Expr, `job="berg-api"`) && !strings.Contains(r.Expr, `job="berg-gate"`) {
			t.Errorf("%s: the job is not the name of the Service", r.Alert)
		}
	}
}

// TestRulesWithoutTheOperator takes the wrapping off as docs/operations.md does.
func TestRulesWithoutTheOperator(t *testing.T) {
	count := 0
	for _, path := range ruleFiles(t) {
		var file strings.Builder
		groups := false
		for line := range strings.Lines(string(read(t, path))) {
			if groups = groups || line == "  groups:\n"; groups {
				file.WriteString(strings.TrimPrefix(line, "  "))
			}
		}
		count += len(parse(t, path, []byte(file.String())))
	}
	if want := len(rules(t)); count != want {
		t.Errorf("%d rules, want %d", count, want)
	}
}

func TestEveryAlertTellsAndHasARunbook(t *testing.T) {
	pages := map[string]bool{}
	for _, path := range glob(t, "docs/runbooks/*.md") {
		pages[strings.TrimSuffix(filepath.Base(path), ".md")] = true
	}
	delete(pages, "README")
	folder := runbooks(t)
	for _, r := range rules(t) {
		if r.Labels["severity"] != "critical" && r.Labels["severity"] != "warning" {
			t.Errorf("%s: severity is %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: needs a summary and a description", r.Alert)
		}
		if r.Annotations["runbook_url"] != folder+r.Alert+".md" {
			t.Errorf("%s: runbook_url is %q", r.Alert, r.Annotations["runbook_url"])
		}
		if !pages[r.Alert] {
			t.Errorf("%s: there is no docs/runbooks/%s.md", r.Alert, r.Alert)
			continue
		}
		delete(pages, r.Alert)
		page := string(read(t, "docs/runbooks/"+r.Alert+".md"))
		for _, part := range []string{"# " + r.Alert + "\n", "\n## Meaning\n", "\n## Impact\n", "\n## Diagnosis\n", "\n## Mitigation\n", "\n```sh\n"} {
			if !strings.Contains(page, part) {
				t.Errorf("docs/runbooks/%s.md: no %q", r.Alert, strings.TrimSpace(part))
			}
		}
	}
	for page := range pages {
		t.Errorf("docs/runbooks/%s.md: there is no such alert", page)
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	known := documented(t)
	used := map[string]string{}
	for _, r := range rules(t) {
		collect(t, used, "alert "+r.Alert, r.Expr)
	}
	for _, d := range dashboards(t) {
		for name, where := range d.metrics(t) {
			used[name] = where
		}
	}
	for name, where := range used {
		// up is made by Prometheus itself, the others by kube-state-metrics.
		if name != "up" && !strings.HasPrefix(name, "kube_") && !known[name] {
			t.Errorf("%s: no metrics.md lists %s", where, name)
		}
	}
}

// collect adds the metrics that an expression asks for, without the suffixes of
// a histogram's series.
func collect(t *testing.T, used map[string]string, where, expr string) {
	t.Helper()
	parsed, err := promQL.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			name := nameOf(selector)
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				name = strings.TrimSuffix(name, suffix)
			}
			used[name] = where
		}
		return nil
	})
}

func nameOf(selector *parser.VectorSelector) string {
	for _, m := range selector.LabelMatchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return selector.Name
}

var row = regexp.MustCompile("^\\| `([a-z_]+)` \\|")

// documented are the metrics of docs/metrics.md, of the platform API, of the gate and of the page of each family; tests of the operator's
// module compare them with those that the operator registers.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, page := range append(glob(t, "docs/*/metrics.md"), "docs/metrics.md", "docs/platform-api.md", "docs/berg/gate.md") {
		lines := bufio.NewScanner(bytes.NewReader(read(t, page)))
		for lines.Scan() {
			if m := row.FindStringSubmatch(lines.Text()); m != nil {
				out[m[1]] = true
			}
		}
	}
	if len(out) < 8 {
		t.Fatalf("the pages list only %d metrics", len(out))
	}
	return out
}

// glob returns the files of a pattern relative to the repository; there must be some.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	for i, path := range paths {
		if paths[i], err = filepath.Rel(root, path); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(paths)
	return paths
}
