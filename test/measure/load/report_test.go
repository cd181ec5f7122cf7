package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/test/measure/machine"
)

func TestTargets(t *testing.T) {
	for name, c := range map[string]struct {
		figure Figure
		met    bool
	}{
		"none":           {Figure{Operator: 99}, true},
		"value within":   {Figure{Operator: 12, Target: atMost(12)}, true},
		"value beyond":   {Figure{Operator: 13, Target: atMost(12)}, false},
		"ratio decides":  {compare("", "", 130, 100, atMost(1.3)), true},
		"ratio too high": {compare("", "", 131, 100, atMost(1.3)), false},
		"ratio too low":  {compare("", "", 84, 100, atLeast(0.85)), false},
		"ratio enough":   {compare("", "", 85, 100, atLeast(0.85)), true},
	} {
		if got := c.figure.met(); got != c.met {
			t.Errorf("%s: met is %t", name, got)
		}
	}
}

func TestOnlyCountsFailARun(t *testing.T) {
	r := Report{Scenarios: []Scenario{{Name: "smoke", Figures: []Figure{
		{Name: "writes", Operator: 13, Target: atMost(12), Count: true},
		{Name: "time", Operator: 99, Target: atMost(1)},
	}}}}
	missed := r.missedCounts([]scenario{{name: "smoke"}})
	if len(missed) != 1 || !strings.Contains(missed[0], "writes is 13, not ≤ 12") {
		t.Errorf("got %q", missed)
	}
	if missed := r.missedCounts([]scenario{{name: "quiet"}}); len(missed) != 0 {
		t.Errorf("of a scenario that was not run: %q", missed)
	}
}

func TestReportKeepsScenariosThatWereNotRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "load.json")
	var r Report
	r.put(Scenario{Name: "quiet", Title: "old"})
	r.put(Scenario{Name: "burst-100", Title: "old"})
	r.put(Scenario{Name: "quiet", Title: "new"})
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	read, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(read.Scenarios) != 2 || read.Scenarios[0].Name != "burst-100" || read.Scenarios[1].Title != "new" {
		t.Errorf("got %+v", read.Scenarios)
	}
}

func TestComparisonShowsARegressionAsARatio(t *testing.T) {
	chosen := []scenario{{name: "balance"}}
	report := func(operator, bare float64) Report {
		return Report{Scenarios: []Scenario{{Name: "balance", Figures: []Figure{compare("p50", "ms", operator, bare, nil)}}}}
	}
	var out bytes.Buffer
	// A machine of half the speed, and an operator that needs three times as long.
	printComparison(&out, report(100, 100), report(300, 200), chosen)
	if fields := strings.Fields(out.String()); fields[len(fields)-1] != "1.5" {
		t.Errorf("got\n%s", &out)
	}
	out.Reset()
	printComparison(&out, Report{}, report(1, 1), chosen)
	if !strings.Contains(out.String(), "no earlier results") {
		t.Errorf("got\n%s", &out)
	}
}

func TestPageKeepsWhatIsAroundTheResults(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("above\n"+pageBegin+"\nold\n"+pageEnd+"\nbelow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Report{Scenarios: []Scenario{{Title: "many together", Machine: machine.Description{Processors: 2, Commit: "f00"}, Figures: []Figure{
		compare("throughput", "per second", 80, 100, atLeast(0.85)), {Name: "writes", Unit: "each", Operator: 10, Target: atMost(12)},
	}}}}
	if err := writePage(page, r, time.Time{}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"above\n" + pageBegin, pageEnd + "\nbelow\n", "### many together", "commit f00, on 2 CPUs",
		"| throughput, per second | 80 | 100 | 0.8 | ≥ 0.85 | **missed** |", "| writes, each | 10 |  |  | ≤ 12 | met |",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old") {
		t.Errorf("the old results stay:\n%s", got)
	}
}
