package monitoring

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

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
			Unit       string `json:"unit"`
			Thresholds struct {
				Steps []struct {
					Color string   `json:"color"`
					Value *float64 `json:"value"`
				} `json:"steps"`
			} `json:"thresholds"`
			Custom struct {
				Stacking struct {
					Mode string `json:"mode"`
				} `json:"stacking"`
			} `json:"custom"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	GridPos struct{ X, Y, W, H int } `json:"gridPos"`
	Targets []target                 `json:"targets"`
}

type target struct {
	RefID      string `json:"refId"`
	Expr       string `json:"expr"`
	Legend     string `json:"legendFormat"`
	Datasource struct {
		UID string `json:"uid"`
	} `json:"datasource"`
}

type dashboard struct {
	// file is relative to the repository.
	file        string
	UID         string   `json:"uid"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Templating  struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

// metrics returns the metrics that a dashboard asks for, and where.
func (d *dashboard) metrics(t *testing.T) map[string]string {
	t.Helper()
	used := map[string]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			collect(t, used, d.file+": panel "+p.Title, expand(target.Expr))
		}
	}
	for _, v := range d.Templating.List {
		if name, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
			used[strings.Split(name, ",")[0]] = d.file + ": variable " + v.Name
		}
	}
	return used
}

// dashboards are that of the process, and one of each family.
func dashboards(t *testing.T) []dashboard {
	t.Helper()
	var all []dashboard
	for _, path := range append(glob(t, "config/*/grafana/*.json"), glob(t, "config/grafana/*.json")...) {
		d := dashboard{file: path}
		if err := json.Unmarshal(read(t, path), &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, d)
	}
	return all
}

func TestDashboards(t *testing.T) {
	titles := map[string]string{}
	for _, d := range dashboards(t) {
		if d.UID == "" || filepath.Base(d.file) != d.UID+".json" {
			t.Errorf("%s: its uid is %q", d.file, d.UID)
		}
		for _, name := range []string{d.UID, d.Title} {
			if other := titles[name]; name == "" || other != "" && other != d.file {
				t.Errorf("%s: %q is the name of %s too", d.file, name, other)
			}
			titles[name] = d.file
		}
		if !slices.Contains(d.Tags, "berg-operator") {
			t.Errorf("%s: the links between dashboards need the tag", d.file)
		}
		variables := map[string]string{}
		for _, v := range d.Templating.List {
			variables[v.Name] = v.Type
		}
		if variables["datasource"] != "datasource" {
			t.Errorf("%s: the data source must be a variable: it has another uid in every Grafana", d.file)
		}
		for i, p := range d.Panels {
			if p.ID != i+1 {
				t.Errorf("%s: %s: id %d is out of order", d.file, p.Title, p.ID)
			}
			if p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: %s: wider than the grid", d.file, p.Title)
			}
			for _, q := range d.Panels[:i] {
				if p.GridPos.X < q.GridPos.X+q.GridPos.W && q.GridPos.X < p.GridPos.X+p.GridPos.W &&
					p.GridPos.Y < q.GridPos.Y+q.GridPos.H && q.GridPos.Y < p.GridPos.Y+p.GridPos.H {
					t.Errorf("%s: %s lies on %s", d.file, p.Title, q.Title)
				}
			}
			if p.Type != "row" {
				checkPanel(t, d.file+": "+p.Title, p)
			}
		}
	}
}

func checkPanel(t *testing.T, where string, p panel) {
	t.Helper()
	if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" {
		t.Errorf("%s: needs a title, a description and a unit", where)
	}
	if len(p.Targets) == 0 {
		t.Errorf("%s: shows nothing", where)
	}
	references := map[string]bool{}
	for _, target := range p.Targets {
		if p.Datasource.UID != "${datasource}" || target.Datasource.UID != "${datasource}" {
			t.Errorf("%s: the data source is not the variable", where)
		}
		if references[target.RefID] {
			t.Errorf("%s: two queries are %s", where, target.RefID)
		}
		references[target.RefID] = true
	}
}

// Each metric of a family is on its dashboard.
func TestDashboardsShowEveryMetric(t *testing.T) {
	for _, page := range glob(t, "docs/*/metrics.md") {
		family := filepath.Base(filepath.Dir(page))
		shown := map[string]bool{}
		for _, d := range dashboards(t) {
			if strings.HasPrefix(d.file, "config/"+family+"/") {
				for name := range d.metrics(t) {
					shown[name] = true
				}
			}
		}
		for name := range described(t, page) {
			// This one has a series for each Challenge, for dashboards of HexaCTF.
			if !shown[name] && name != "challenge_resource_status" {
				t.Errorf("no dashboard of %s shows %s", family, name)
			}
		}
	}
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// TestDashboardsShowData asks each query while the metrics in it have a series with the documented labels: one that
// joins on a label that is not there, or selects by one, finds nothing.
func TestDashboardsShowData(t *testing.T) {
	known := map[string]series{}
	for _, page := range append(glob(t, "docs/*/metrics.md"), "docs/metrics.md") {
		for name, s := range described(t, page) {
			known[name] = s
		}
	}
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				where := d.file + ": " + p.Title
				found := query(t, seriesFor(t, where, known, expand(target.Expr)), expand(target.Expr))
				if len(found) == 0 {
					t.Errorf("%s: %s finds nothing", where, target.Expr)
					continue
				}
				for _, label := range legendLabel.FindAllStringSubmatch(target.Legend, -1) {
					if found[0].Metric.Get(label[1]) == "" {
						t.Errorf("%s: %s has no label %s for its legend", where, target.Expr, label[1])
					}
				}
			}
		}
	}
}

// seriesFor are the series of the metrics in an expression, with the labels that it selects.
func seriesFor(t *testing.T, where string, known map[string]series, expr string) []string {
	t.Helper()
	parsed, err := promQL.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	// The pages say no labels of the metrics of the platform API and of the gate, of Prometheus and of kube-state-metrics.
	all := slices.DeleteFunc(healthy(), func(s string) bool {
		return !strings.HasPrefix(s, "berg_api_") && !strings.HasPrefix(s, "berg_gate_") && !strings.HasPrefix(s, "up{")
	})
	all = append(all,
		`kube_pod_info{node="one"} 20x90`,
		`kube_node_status_allocatable{node="one",resource="pods"} 110x90`,
		`kube_node_status_allocatable{node="one",resource="cpu"} 16x90`,
		`kube_node_status_allocatable{node="one",resource="memory"} 64e9x90`,
		`kube_pod_container_resource_requests{node="one",resource="cpu"} 3x90`,
		`kube_pod_container_resource_requests{node="one",resource="memory"} 6e9x90`,
	)
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name := nameOf(selector)
		base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
		if known[base].kind != "histogram" {
			base = name
		}
		s, isKnown := known[base]
		if !isKnown {
			return nil
		}
		values := map[string]string{}
		for _, label := range s.labels {
			values[label] = "some"
		}
		for _, m := range selector.LabelMatchers {
			if slices.Contains([]string{"__name__", "job", "le"}, m.Name) {
				continue
			}
			if _, has := values[m.Name]; !has {
				t.Errorf("%s: %s has no label %s", where, base, m.Name)
			}
			if m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp {
				values[m.Name] = regexp.MustCompile(`[|(].*`).ReplaceAllString(m.Value, "")
			}
		}
		var text []string
		for _, label := range s.labels {
			text = append(text, fmt.Sprintf("%s=%q", label, values[label]))
		}
		all = with(all, s.filled(base, strings.Join(text, ","))...)
		return nil
	})
	return all
}

// series is what a page says of a metric.
type series struct {
	kind   string
	labels []string
}

// filled are the series of a busy day.
func (s series) filled(name, labels string) []string {
	if s.kind == "histogram" {
		sum := `some_sum{` + job + `,instance="a"} 0+6x90`
		if labels != "" {
			sum = `some_sum{` + job + `,instance="a",` + labels + `} 0+6x90`
		}
		return append(histogram(name, labels, "1", 3), strings.Replace(sum, "some", name, 1))
	}
	values := "3x90"
	switch {
	case s.kind == "counter":
		values = "0+3x90"
	case strings.HasSuffix(name, "_status"), strings.HasSuffix(name, "_timestamp_seconds"):
		values = "1x90"
	}
	all := job + `,instance="a",pod="a"`
	if labels != "" {
		all += "," + labels
	}
	return []string{name + "{" + all + "} " + values}
}

var describedRow = regexp.MustCompile("^\\| `([a-z_]+)` \\| ([a-z]+) \\| (.*?) ?\\| .+ \\|$")

// described are the metrics of a page with their types and labels, which tests of the operator's module compare with those
// that the operator has.
func described(t *testing.T, page string) map[string]series {
	t.Helper()
	out := map[string]series{}
	lines := bufio.NewScanner(bytes.NewReader(read(t, page)))
	for lines.Scan() {
		if m := describedRow.FindStringSubmatch(lines.Text()); m != nil {
			out[m[1]] = series{m[2], strings.FieldsFunc(m[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })}
		}
	}
	if len(out) < 4 {
		t.Fatalf("%s lists only %d metrics", page, len(out))
	}
	return out
}

// expand puts values in for the dashboard's variables, as Grafana does.
func expand(expr string) string {
	return strings.ReplaceAll(expr, "$job", "berg-operator-controller-manager-metrics")
}
