package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestBill writes the bill of this very program, twice.
func TestBill(t *testing.T) {
	program := filepath.Join(t.TempDir(), "sbom")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var texts [2][]byte
	for i := range texts {
		file := filepath.Join(t.TempDir(), "dist", "bill.json")
		if err := run([]string{"--name", "sbom", "--version", "v1.2.3+meta", "--output", file, program}); err != nil {
			t.Fatal(err)
		}
		var err error
		if texts[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("two runs give two bills")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(texts[0]), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if got := bom.Metadata.Component.PackageURL; got != "pkg:golang/github.com/bergctf/berg-operator/hack/tools/sbom@v1.2.3%2Bmeta" {
		t.Error(got)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) == 0 || len(*bom.Components) != len(info.Deps)+1 {
		t.Errorf("%d components of %d modules and the standard library", len(*bom.Components), len(info.Deps))
	}
	if one, other := bill("sbom", "v1", info), bill("sbom", "v2", info); one.SerialNumber == other.SerialNumber {
		t.Error("two versions have one serial number")
	}
	for _, module := range info.Deps {
		if !slices.ContainsFunc(*bom.Components, func(c cdx.Component) bool { return c.Name == module.Path && c.Version == module.Version }) {
			t.Errorf("%s is missing", module.Path)
		}
	}
}

func TestReplacedModules(t *testing.T) {
	bom := bill("a", "v1", &debug.BuildInfo{Deps: []*debug.Module{
		{Path: "example.com/a/api", Version: "v0.1.0", Replace: &debug.Module{Path: "./api"}},
		{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.0.1", Sum: "h1:x"}},
	}})
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.PackageURL)
	}
	if want := []string{"pkg:golang/std@", "pkg:golang/example.com/a/api@v0.1.0", "pkg:golang/example.com/fork@v1.0.1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestUsage(t *testing.T) {
	if run([]string{"--name", "a", "program"}) == nil || run([]string{"--name", "a", "--version", "b", "--output", t.TempDir() + "/c", "/etc/passwd"}) == nil {
		t.Error("no error for what cannot be listed")
	}
}
