package monitoring

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/bergctf/berg-operator/test/conform/monitoring/picture"
)

var update = flag.Bool("update", false, "write the pictures of dashboards in docs/pictures")

const (
	// recordingFile is what test/measure/dashboards recorded.
	recordingFile = "test/conform/monitoring/testdata/recording.txt"
	// pictureLimit is the size of a picture in bytes: readers load several of them.
	pictureLimit = 200_000
	// pictureStep is between two points of a line.
	pictureStep = 10 * time.Second
	// withoutGate is the reason of panels about the gate.
	withoutGate = "the run that was recorded has no gate"
)

// withoutData are the panels that cannot show data in the recording, by what the reason is.
var withoutData = map[string]string{
	"Free capacity for pods on nodes":     "kube-state-metrics is not part of the operator",
	"Connections through the gate":        withoutGate,
	"Refused by the gate":                 withoutGate,
	"Routes of each replica of the gate":  withoutGate,
	"Certificates of the gate: time left": withoutGate,
	"Images pushed":                       "a test wrote the results of builds, without sizes",
	"Images deleted":                      "there was no registry",
	"Questions to git servers":            "no Application had builds that pushes start",
}

// Every dashboard is in docs as a picture, drawn from its own queries over what the operator reported in a run.
func TestPicturesOfDashboards(t *testing.T) {
	data, begin, end := recorded(t)
	for _, d := range dashboards(t) {
		board := picture.Board{Title: d.Title, Text: d.Description, Begin: begin, End: end}
		for _, p := range d.Panels {
			board.Panels = append(board.Panels, drawn(t, d.file, p, data, begin, end))
		}
		got := picture.Draw(board)
		if len(got) > pictureLimit {
			t.Errorf("the picture of %s has %d bytes, %d are allowed", d.file, len(got), pictureLimit)
		}
		path := "docs/pictures/" + d.UID + ".svg"
		if *update {
			if err := os.WriteFile(filepath.Join(root, path), got, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if !bytes.Equal(got, read(t, path)) {
			t.Errorf("%s is not the picture of %s: run 'make dashboard-pictures'", path, d.file)
		}
	}
}

// recorded are the series of a run of the operator, and its time.
func recorded(t *testing.T) (data storage.Queryable, begin, end time.Time) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(read(t, recordingFile))), "\n")
	header := regexp.MustCompile(`^# from (\S+) every (\S+) for (\S+)$`).FindStringSubmatch(lines[0])
	if header == nil {
		t.Fatalf("%s begins with %q", recordingFile, lines[0])
	}
	begin, err := time.Parse(time.RFC3339, header[1])
	if err != nil {
		t.Fatal(err)
	}
	interval, err := time.ParseDuration(header[2])
	if err != nil {
		t.Fatal(err)
	}
	length, err := time.ParseDuration(header[3])
	if err != nil {
		t.Fatal(err)
	}
	return stored(t, lines[1:], begin, interval), begin, begin.Add(length)
}

// drawn is a panel with what its queries find.
func drawn(t *testing.T, file string, p panel, data storage.Queryable, begin, end time.Time) picture.Panel {
	t.Helper()
	out := picture.Panel{
		Type: p.Type, Title: p.Title, X: p.GridPos.X, Y: p.GridPos.Y, W: p.GridPos.W, H: p.GridPos.H,
		Unit: p.FieldConfig.Defaults.Unit, Stacked: p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal",
	}
	if p.Type == "row" {
		return out
	}
	where := file + ": " + p.Title
	if !picture.Known(out.Unit) {
		t.Errorf("%s: pictures do not know the unit %s", where, out.Unit)
	}
	for _, s := range p.FieldConfig.Defaults.Thresholds.Steps {
		from := math.Inf(-1)
		if s.Value != nil {
			from = *s.Value
		}
		out.Steps = append(out.Steps, picture.Step{Color: s.Color, From: from})
	}
	for _, target := range p.Targets {
		for _, series := range overTime(t, data, expand(target.Expr), begin, end) {
			out.Lines = append(out.Lines, picture.Line{Legend: legend(target.Legend, series.Metric), Values: everyStep(series, begin, end)})
		}
	}
	if why, allowed := withoutData[p.Title]; out.HasData() == allowed {
		t.Errorf("%s: shows data in %s: %t; it is expected not to: %t %s", where, recordingFile, out.HasData(), allowed, why)
	}
	return out
}

// overTime asks for an expression at each step.
func overTime(t *testing.T, data storage.Queryable, expr string, begin, end time.Time) promql.Matrix {
	t.Helper()
	q, err := engine.NewRangeQuery(t.Context(), data, nil, expr, begin, end, pictureStep)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	var out promql.Matrix
	for _, series := range matrix { // what the engine returns is its own once it is closed
		out = append(out, promql.Series{Metric: series.Metric, Floats: append([]promql.FPoint(nil), series.Floats...)})
	}
	return out
}

// everyStep are the values of a series at each step, NaN where there is none.
func everyStep(series promql.Series, begin, end time.Time) []float64 {
	var out []float64
	left := series.Floats
	for at := begin; !at.After(end); at = at.Add(pictureStep) {
		value := math.NaN()
		if len(left) > 0 && left[0].T == at.UnixMilli() {
			value, left = left[0].F, left[1:]
		}
		out = append(out, value)
	}
	return out
}

// legend fills a text of Grafana's in.
func legend(text string, of labels.Labels) string {
	return legendLabel.ReplaceAllStringFunc(text, func(label string) string { return of.Get(strings.Trim(label, "{}")) })
}
