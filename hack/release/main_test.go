package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
)

const template = `# comment
schema: olm.template.basic
entries:
- schema: olm.package
  name: berg-operator
- schema: olm.channel
  package: berg-operator
  name: candidate
  entries:
  - name: berg-operator.v0.1.0
- schema: olm.channel
  package: berg-operator
  name: stable
  entries:
  - name: berg-operator.v0.1.0
`

const (
	templateFile = templates + "/berg-operator.yaml"
	otherFile    = templates + "/other-operator.yaml"
)

// program is a go.mod that requires the module in api.
const program = `module github.com/bergctf/berg-operator

require (
	github.com/bergctf/berg-operator/api v0.1.0
	k8s.io/api v0.37.1
)

replace github.com/bergctf/berg-operator/api => ./api
`

// tree creates the part of a working tree that a release changes.
func tree(t *testing.T) (root string, read func(string) string) {
	t.Helper()
	root = t.TempDir()
	for path, text := range map[string]string{
		versionsFile: "# comment\nVERSION ?= 0.1.0\nOTHER_VERSION ?= 1\n", templateFile: template,
		otherFile: strings.ReplaceAll(template, "berg-operator", "other-operator"),
		"go.mod":  program, "test/conform/other/go.mod": program, "test/conform/apart/go.mod": "module apart\n",
		"config/family/crd/bases/kind.yaml": "kind: A\n", published + "/baseline/kind.yaml": "kind: older\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root, func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func TestRelease(t *testing.T) {
	root, read := tree(t)
	for _, next := range []string{"0.2.0-rc.1", "0.2.0", "1.0.0"} {
		if err := release(root, next); err != nil {
			t.Fatalf("%s: %v", next, err)
		}
	}
	if got, want := read(versionsFile), "# comment\nVERSION ?= 1.0.0\nOTHER_VERSION ?= 1\n"; got != want {
		t.Errorf("versions:\n%s\nwant:\n%s", got, want)
	}
	for _, path := range []string{"go.mod", "test/conform/other/go.mod"} {
		if got, want := read(path), strings.Replace(program, "/api v0.1.0\n", "/api v1.0.0\n", 1); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", path, got, want)
		}
	}
	want := strings.Replace(template, `  name: candidate
  entries:
  - name: berg-operator.v0.1.0
`, `  name: candidate
  entries:
  - name: berg-operator.v0.1.0
  - name: berg-operator.v0.2.0-rc.1
    replaces: berg-operator.v0.1.0
    skipRange: '>=0.1.0 <0.2.0-rc.1'
  - name: berg-operator.v0.2.0
    replaces: berg-operator.v0.2.0-rc.1
    skipRange: '>=0.1.0 <0.2.0'
  - name: berg-operator.v1.0.0
    replaces: berg-operator.v0.2.0
    skipRange: '>=0.1.0 <1.0.0'
`, 1) + `  - name: berg-operator.v0.2.0
    replaces: berg-operator.v0.1.0
    skipRange: '>=0.1.0 <0.2.0'
  - name: berg-operator.v1.0.0
    replaces: berg-operator.v0.2.0
    skipRange: '>=0.1.0 <1.0.0'
`
	if got := read(templateFile); got != want {
		t.Errorf("template:\n%s\nwant:\n%s", got, want)
	}
	if got := read(otherFile); got != strings.ReplaceAll(want, "berg-operator", "other-operator") {
		t.Errorf("template of another package:\n%s", got)
	}
	for _, version := range []string{"0.1.0", "0.2.0-rc.1", "0.2.0"} {
		if got := read(published + "/v" + version + "/kind.yaml"); got != "kind: A\n" {
			t.Errorf("CRDs of %s: %q", version, got)
		}
	}
	if _, err := os.Stat(filepath.Join(root, published, "baseline")); !os.IsNotExist(err) {
		t.Errorf("the baseline still exists: %v", err)
	}
}

func TestReleaseRefuses(t *testing.T) {
	for _, next := range []string{"0.1.0", "0.0.9", "0.1.0-rc.1", "v0.2.0", "0.2", "next", "0.2.0+build", "2.0.0"} {
		root, read := tree(t)
		if err := release(root, next); err == nil {
			t.Errorf("%s: accepted", next)
		}
		if read(templateFile) != template || read("go.mod") != program || !strings.Contains(read(versionsFile), "VERSION ?= 0.1.0\n") || read(published+"/baseline/kind.yaml") == "" {
			t.Errorf("%s: something was changed", next)
		}
	}
}

// The modules of this repository require the module in api with the version of the tree.
func TestRequireAPIReadsTheModules(t *testing.T) {
	versions, err := os.ReadFile("../../" + versionsFile)
	if err != nil {
		t.Fatal(err)
	}
	required, err := requireAPI("../..", semver.MustParse(string(versionLine.FindSubmatch(versions)[1])))
	if err != nil {
		t.Fatal(err)
	}
	if len(required) != 2 {
		t.Errorf("%d modules require it, want two", len(required))
	}
	for path, want := range required {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s does not require the version of %s (%v)", path, versionsFile, err)
		}
	}
}

// The templates of this repository have the expected format.
func TestOfferReadsTheTemplates(t *testing.T) {
	files, err := filepath.Glob("../../" + templates + "/*.yaml")
	if err != nil || len(files) != 5 {
		t.Fatalf("templates %q: %v, want five", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		offered, err := offer(string(text), name, semver.MustParse("99.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(offered, "- name: "+name+".v99.0.0\n"); n != 2 {
			t.Errorf("%s is offered in %d channels, want 2", name, n)
		}
	}
}
