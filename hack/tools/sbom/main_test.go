package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
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
		notices := filepath.Join(t.TempDir(), "notices.txt")
		if err := run([]string{"--name", "sbom", "--version", "v1.2.3+meta", "--output", file, "--notices", notices, program, program}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(notices)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"github.com/google/uuid v1.6.0\n", "Copyright (c) 2009,2014 Google Inc.", "Apache License", "Go 1.", "sbom v1.2.3"} {
			if !strings.Contains(string(text), part) {
				t.Errorf("the notices do not have %q", part)
			}
		}
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
	folders, err := findFolders("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	one, notices, err := bill("sbom", "v1", []*debug.BuildInfo{info}, folders)
	if err != nil {
		t.Fatal(err)
	}
	if other, same, err := bill("sbom", "v2", []*debug.BuildInfo{info}, folders); err != nil || one.SerialNumber == other.SerialNumber || same == notices {
		t.Errorf("two versions have one serial number, or the same notices: %v", err)
	}
	for _, c := range append(*one.Components, *one.Metadata.Component) {
		if c.Licenses == nil || (*c.Licenses)[0].License.ID == "" {
			t.Errorf("%s has no licence", c.Name)
		}
	}
	// A module without a licence must not be linked.
	empty := t.TempDir()
	if err := os.WriteFile(filepath.Join(empty, "LICENSE"), []byte("all rights reserved"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readLicences(empty); err == nil {
		t.Error("a text that is no licence is one")
	}
	for _, module := range info.Deps {
		if !slices.ContainsFunc(*bom.Components, func(c cdx.Component) bool { return c.Name == module.Path && c.Version == module.Version }) {
			t.Errorf("%s is missing", module.Path)
		}
	}
}

func TestReplacedModules(t *testing.T) {
	first := &debug.BuildInfo{Deps: []*debug.Module{
		{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.0.1", Sum: "h1:x"}},
		{Path: "example.com/a/api", Version: "v0.1.0", Replace: &debug.Module{Path: "./api"}},
	}}
	second := &debug.BuildInfo{Deps: []*debug.Module{{Path: "example.com/fork", Version: "v1.0.1", Sum: "h1:x"}, {Path: "example.com/c", Version: "v2.0.0"}}}
	var got []string
	for _, m := range linkedModules([]*debug.BuildInfo{first, second}) {
		got = append(got, m.Path+"@"+m.Version)
	}
	if want := []string{"example.com/a/api@v0.1.0", "example.com/c@v2.0.0", "example.com/fork@v1.0.1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestUsage(t *testing.T) {
	if run([]string{"--name", "a", "program"}) == nil || run([]string{"--name", "a", "--version", "b", "--output", t.TempDir() + "/c", "/etc/passwd"}) == nil {
		t.Error("no error for what cannot be listed")
	}
}
