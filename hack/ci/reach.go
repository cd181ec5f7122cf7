package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/bergctf/berg-operator/"

// On these every stage depends.
var reachesAll = []string{"go.mod", "go.sum", "api/go.mod", "api/go.sum", "Makefile", "hack/make", "hack/versions.mk", ".ci", "hack/ci", "hack/packages", "hack/with-cluster", "hack/tools"}

// On these only stages depend that always run, such as unit tests and generated files, and those that name them.
var checkedAlways = []string{
	"docs", "LICENSE", ".github", ".gitignore", ".dockerignore", ".golangci.yml", "*Dockerfile", "PROJECT", "test/conform", "bundle", "catalog", "deploy",
	"config/grafana", "config/*/grafana", "config/prometheus", "config/*/prometheus", "config/manifests", "config/packages", "config/olm", "config/operatorhub", "config/scorecard", "hack",
}

// runs are the programs that packages build and run, which go list does not know.
var runs = map[string]string{
	"test/lib/launch": operator, "test/lib/tunneltest": "cmd/berg-tunnel",
	"test/integration/plugin": "cmd/kubectl-berg", "test/e2e/berg": "cmd/kubectl-berg",
}

// change is what differs from a commit.
type change struct {
	base  string
	paths []string
}

// changeSince lists the paths that differ from a commit, uncommitted ones included.
func changeSince(ctx context.Context, base string) (change, error) {
	if base == "auto" {
		base = landed(ctx)
	}
	tracked, err := git(ctx, "diff", "--name-only", "--no-renames", base)
	if err != nil {
		return change{}, fmt.Errorf("compare with %s (--all runs everything): %w", base, err)
	}
	others, err := git(ctx, "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return change{}, err
	}
	paths := append(strings.Fields(tracked), strings.Fields(others)...)
	slices.Sort(paths)
	return change{base, slices.Compact(paths)}, nil
}

// landed is the commit where the branch left its upstream; on the upstream branch itself the one before HEAD.
func landed(ctx context.Context) string {
	if base := os.Getenv("CI_BASE"); base != "" {
		return base
	}
	head, err := git(ctx, "rev-parse", "HEAD")
	for _, branch := range []string{"@{upstream}", "origin/HEAD", "origin/main"} {
		if base, failed := git(ctx, "merge-base", "HEAD", branch); err == nil && failed == nil && base != head {
			return base
		}
	}
	return "HEAD~1"
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	return strings.TrimSpace(string(out)), err
}

// unreached returns the stages whose result the changed paths cannot alter, with the reason. In doubt a stage runs: a
// path about which nothing is known reaches all.
func unreached(packages graph, list []stage, paths []string) map[string]string {
	run := map[string]bool{}
	var need func(name string)
	need = func(name string) {
		if run[name] {
			return
		}
		run[name] = true
		for _, s := range list {
			if s.name == name {
				for _, other := range s.after {
					need(other)
				}
			}
		}
	}
	reads := map[string]func(string) bool{}
	for _, s := range list {
		if s.scope != nil {
			reads[s.name] = packages.reads(s.scope)
		}
	}
	for _, s := range list {
		if s.always {
			need(s.name)
		}
	}
	for _, changed := range paths {
		reached := slices.DeleteFunc(slices.Clone(list), func(s stage) bool { return s.scope == nil || !reads[s.name](changed) })
		isKnown := len(reached) > 0 || matches(checkedAlways, changed) || strings.HasSuffix(changed, ".md") || packages.holds(changed) != ""
		if !isKnown || matches(reachesAll, changed) {
			reached = list
		}
		for _, s := range reached {
			need(s.name)
		}
	}
	why := map[string]string{}
	for _, s := range list {
		if !run[s.name] {
			why[s.name] = "the change does not reach it"
		}
	}
	return why
}

// graph has what each package of this module and of the one in api imports of the two, by folder: itself, and its tests.
type graph map[string]*imports

type imports struct{ own, tests []string }

func load(ctx context.Context) (graph, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...", module+"api/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all := graph{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var one struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[folder(one.ImportPath)] = &imports{folders(one.Imports), folders(append(one.TestImports, one.XTestImports...))}
	}
}

func folder(importPath string) string { return strings.TrimPrefix(importPath, module) }

func folders(importPaths []string) (all []string) {
	for _, importPath := range importPaths {
		if strings.HasPrefix(importPath, module) {
			all = append(all, folder(importPath))
		}
	}
	return all
}

// holds returns the folder of the package to which a file belongs, as testdata does to the package around it; "" if
// there is none.
func (g graph) holds(file string) string {
	for at := path.Dir(file); at != "."; at = path.Dir(at) {
		if g[at] != nil {
			return at
		}
	}
	return ""
}

// reads returns a function that tells whether a file can alter the result of what has a scope: a file of a package
// that go list -deps -test names, a file of an API group of which it imports something, one of its paths; and, where
// a cluster is used, what makes or installs it.
//
// What the list of all API groups imports, which every program has, does not count: groups do not know each other. So
// a change of a group reaches the suites that import something of it themselves, and those that look at all groups.
func (g graph) reads(s *scope) func(string) bool {
	seen, groups := map[string]bool{}, map[string]bool{}
	var visit func(string)
	visit = func(at string) {
		if at == "" || seen[at] || g[at] == nil {
			return
		}
		seen[at], groups[groupOf(at)] = true, true
		visit(runs[at])
		for _, next := range g[at].own {
			if at != operator+"/families" || groupOf(next) == "" {
				visit(next)
			}
		}
	}
	for _, at := range slices.Concat(s.tests, s.programs) {
		visit(at)
	}
	for _, at := range s.tests {
		for _, next := range g[at].tests {
			visit(next)
		}
	}
	return func(file string) bool {
		group, always := groupOf(file), matches(checkedAlways, file) || strings.HasSuffix(file, ".md")
		switch {
		case matches(s.paths, file):
			return true
		case strings.HasSuffix(file, "_test.go"):
			return slices.Contains(s.tests, path.Dir(file))
		case always:
			return false
		case group != "":
			return s.everything || groups[group]
		case matches([]string{"config", cluster}, file):
			return seen[cluster]
		}
		return seen[g.holds(file)]
	}
}

// groupOf is the folder of the API group to which a file or package belongs, "" for none.
func groupOf(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) < 2 || !slices.Contains([]string{"api", "internal", "config"}, parts[0]) {
		return ""
	}
	if versions, err := filepath.Glob(filepath.Join("api", parts[1], "v[0-9]*")); err != nil || len(versions) == 0 {
		return ""
	}
	return parts[1]
}

// matches tells whether a path is one of some files or in one of some folders, whose names may have asterisks.
func matches(patterns []string, name string) bool {
	parts := strings.Split(name, "/")
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		wanted := strings.Split(strings.TrimSuffix(pattern, "/"), "/")
		if len(parts) < len(wanted) {
			return false
		}
		for n, want := range wanted {
			if ok, _ := path.Match(want, parts[n]); !ok {
				return false
			}
		}
		return true
	})
}
