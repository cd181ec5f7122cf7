package importer_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/importer"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/lint"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

var update = flag.Bool("update", false, "write the golden files")

var allowed = rules.Allowed{
	Capabilities:  []string{"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "KILL", "NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW", "SYS_CHROOT", "SYS_PTRACE"},
	NestedSandbox: true,
}

// Each folder of testdata is what an author has. The golden file is the Challenge, and what import says of it in comments.
func TestImport(t *testing.T) {
	folders, err := filepath.Glob("testdata/*")
	if err != nil || len(folders) < 15 {
		t.Fatalf("%d folders: %v", len(folders), err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			result, err := importer.Import(folder, importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed})
			if err != nil {
				t.Fatal(err)
			}
			text, err := importer.Write(result.Challenges)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range lint.Check(lint.Source{Name: folder, Content: text, Named: true}, rules.Settings{Allowed: allowed}).Findings {
				if f.Severity == lint.Error || strings.Contains(f.Message, "no port that players can reach") {
					t.Errorf("lint: %s: %s", f.Field, f.Message)
				}
			}
			var got bytes.Buffer
			got.Write(text)
			for _, n := range result.Lost {
				got.WriteString("# lost: " + n.String() + "\n")
			}
			for _, n := range result.Chosen {
				got.WriteString("# chosen: " + n.String() + "\n")
			}
			for _, b := range result.Builds {
				got.WriteString("# build: " + b.Image + " from " + b.Context + " " + b.Dockerfile + "\n")
			}
			golden := filepath.Join(folder, "golden.yaml")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, got.Bytes()) {
				t.Errorf("got\n%s\nwant\n%s", got.Bytes(), want)
			}
		})
	}
}

func TestImportOfNoYAMLNamesALine(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "compose.yaml"), []byte("services:\n  bot:\n    environment: [FLAG=flag{x}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := importer.Import(folder, importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed})
	if err == nil || !strings.Contains(err.Error(), "compose.yaml: must be YAML: line ") {
		t.Errorf("got %v", err)
	}
}
