package monitoring

import (
	"bufio"
	"bytes"
	"encoding/json"
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

const runbooks = "https://github.com/bergctf/berg-operator/blob/main/docs/runbooks/"

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
		if strings.Contains(r.Expr, "job=") && !strings.Contains(r.Expr, `job="berg-operator-`+service.Metadata.Name+`"`) && !strings.Contains(r.Expr, `job="berg-api"`) {
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
	for _, r := range rules(t) {
		if r.Labels["severity"] != "critical" && r.Labels["severity"] != "warning" {
			t.Errorf("%s: severity is %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: needs a summary and a description", r.Alert)
		}
		if r.Annotations["runbook_url"] != runbooks+r.Alert+".md" {
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

// panel is what the tests look at in a panel of a Grafana dashboard.
type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	GridPos struct{ X, Y, W, H int } `json:"gridPos"`
	Targets []struct {
		Expr       string `json:"expr"`
		Datasource struct {
			UID string `json:"uid"`
		} `json:"datasource"`
	} `json:"targets"`
}

type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal(read(t, "config/grafana/berg-operator.json"), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 10 {
		t.Fatalf("only %d panels", len(d.Panels))
	}
	return d
}

func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.UID == "" || d.Title == "" {
		t.Error("needs a uid and a title")
	}
	variables := map[string]string{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
	}
	if variables["datasource"] != "datasource" {
		t.Error("the data source must be a variable: it has another uid in every Grafana")
	}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: wider than the grid", p.Title)
		}
		for _, q := range d.Panels[:i] {
			if p.GridPos.X < q.GridPos.X+q.GridPos.W && q.GridPos.X < p.GridPos.X+p.GridPos.W &&
				p.GridPos.Y < q.GridPos.Y+q.GridPos.H && q.GridPos.Y < p.GridPos.Y+p.GridPos.H {
				t.Errorf("%s lies on %s", p.Title, q.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" {
			t.Errorf("panel %d %q: needs a title, a description and a unit", p.ID, p.Title)
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s: shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			if p.Datasource.UID != "${datasource}" || target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: the data source is not the variable", p.Title)
			}
			if _, err := promQL.ParseExpr(expand(target.Expr)); err != nil {
				t.Errorf("%s: %s: %v", p.Title, target.Expr, err)
			}
		}
	}
}

// TestDashboardShowsData asks the queries of the dashboard on a healthy day: one
// that joins on a label that is not there finds nothing.
func TestDashboardShowsData(t *testing.T) {
	series := append(healthy(),
		`berg_challengeinstance_total{`+job+`,instance="a",challenge="web"} 0+3x90`,
		`berg_challengeinstance_timeouts_total{`+job+`,instance="a"} 0+3x90`,
		`controller_runtime_active_workers{`+job+`,instance="a",controller="challengeinstance"} 3x90`,
		`controller_runtime_max_concurrent_reconciles{`+job+`,instance="a",controller="challengeinstance"} 32x90`,
		`process_resident_memory_bytes{`+job+`,instance="a",pod="a"} 1e8x90`,
		`process_cpu_seconds_total{`+job+`,instance="a",pod="a"} 0+3x90`,
		`quix_environment_active{`+job+`,instance="a",phase="Ready"} 3x90`,
	)
	series = append(series, histogram("quix_environment_time_to_ready_seconds", "", "0.5", 3)...)
	series = append(series, histogram("berg_challengeinstance_duration_seconds", "", "600", 3)...)
	series = with(series, histogram("berg_challengeinstance_reconcile_duration_seconds", "", "0.1", 100)...)
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			if len(query(t, series, expand(target.Expr))) == 0 {
				t.Errorf("%s: %s finds nothing", p.Title, target.Expr)
			}
		}
	}
}

// expand puts values in for the dashboard's variables, as Grafana does.
func expand(expr string) string {
	return strings.ReplaceAll(expr, "$job", "berg-operator-controller-manager-metrics")
}

func TestEveryMetricIsDocumented(t *testing.T) {
	known := documented(t)
	used := map[string]string{}
	for _, r := range rules(t) {
		collect(t, used, "alert "+r.Alert, r.Expr)
	}
	d := readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			collect(t, used, "panel "+p.Title, expand(target.Expr))
		}
	}
	for _, v := range d.Templating.List {
		if name, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
			used[strings.Split(name, ",")[0]] = "variable " + v.Name
		}
	}
	for name, where := range used {
		if name != "up" && !known[name] { // up is made by Prometheus itself
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
			name := selector.Name
			for _, m := range selector.LabelMatchers {
				if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
					name = m.Value
				}
			}
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				name = strings.TrimSuffix(name, suffix)
			}
			used[name] = where
		}
		return nil
	})
}

var row = regexp.MustCompile("^\\| `([a-z_]+)` \\|")

// documented are the metrics of docs/metrics.md, of the platform API and of the page of each family; tests of the operator's
// module compare them with those that the operator registers.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, page := range append(glob(t, "docs/*/metrics.md"), "docs/metrics.md", "docs/platform-api.md") {
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
