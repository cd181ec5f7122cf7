package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/performance.md instead of comparing with it")

const published = "../../../docs/performance.md"

// Readers compare the operator by the figures of the page. A figure that is older than the code says so.
func TestThePageMarksFiguresThatAreOlderThanTheCode(t *testing.T) {
	changed, err := lastChange(t.Context(), ".")
	if err != nil {
		t.Skip(err)
	}
	report, err := readReport("../../../docs/performance/load.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(published)
	if err != nil {
		t.Fatal(err)
	}
	copied := published
	if !*update {
		copied = filepath.Join(t.TempDir(), "performance.md")
		if err := os.WriteFile(copied, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writePage(copied, report, changed); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	if !*update && string(got) != string(want) {
		t.Error("docs/performance.md differs from load.json, or does not mark each figure that is older than the code: go test ./test/measure/load -update")
	}
}

func TestOldFiguresAreMarked(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	text := results(Report{Scenarios: []Scenario{{Name: "quiet", Title: "old", Date: noon}, {Name: "smoke", Title: "new", Date: noon.Add(2 * time.Hour)}}}, noon.Add(time.Hour))
	if strings.Count(text, "Older than the last change") != 1 || !strings.Contains(text, "--scenarios quiet") {
		t.Errorf("got\n%s", text)
	}
}
