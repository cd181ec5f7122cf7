package attack

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table into docs/berg/isolation.md")

func TestDocumentsShowTheMatrix(t *testing.T) { documentsShow(t, "table", Table()) }

func TestDocumentsShowTheSeizures(t *testing.T) { documentsShow(t, "jails", SeizureTable()) }

func documentsShow(t *testing.T, name, table string) {
	t.Helper()
	tableBegin, tableEnd := "<!-- "+name+" of test/e2e/berg/attack: begin -->\n", "<!-- "+name+" of test/e2e/berg/attack: end -->\n"
	path := filepath.Join("..", "..", "..", "..", "docs", "berg", "isolation.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, began := strings.Cut(string(text), tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !began || !ended {
		t.Fatalf("%s has no place for the table", path)
	}
	want := before + tableBegin + table + tableEnd + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s differs from the matrix: run go test ./test/e2e/berg/attack -update", path)
	}
}
