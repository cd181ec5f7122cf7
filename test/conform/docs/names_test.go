package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	objectName = regexp.MustCompile(`(?m)^ {2}name: ([a-z0-9-]+)`)
	mention    = regexp.MustCompile(`\bberg-operator-[a-z0-9-]+[a-z0-9]`)
)

// TestCommandsNameObjectsThatExist compares what commands and texts name with the
// objects of config/, all of which get the prefix berg-operator-.
func TestCommandsNameObjectsThatExist(t *testing.T) {
	known := []string{"berg-operator-system", "berg-operator-dashboard", "berg-operator-settings", "berg-operator-catalog", "berg-operator-all"}
	err := filepath.WalkDir(filepath.Join(root, "config"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" {
			for _, m := range objectName.FindAllStringSubmatch(string(read(t, strings.TrimPrefix(path, root+"/"))), -1) {
				known = append(known, m[1], "berg-operator-"+m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// The policies of config/confined have a prefix for each API group, too.
	for _, m := range objectName.FindAllStringSubmatch(string(read(t, "deploy/fence.yaml")), -1) {
		known = append(known, m[1])
	}
	mentions := 0
	for _, page := range append(glob(t, "docs/*.md"), append(glob(t, "docs/*/*.md"), "README.md")...) {
		for _, name := range mention.FindAllString(string(read(t, page)), -1) {
			mentions++
			// A command may name a part of several names, for grep.
			if !slices.ContainsFunc(known, func(k string) bool {
				return k == name || strings.HasPrefix(k, name) && strings.Contains(string(read(t, page)), "grep "+name)
			}) {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
	if mentions < 20 {
		t.Errorf("only %d names found", mentions)
	}
}

// ambiguous is a command that names a kind by a name that others have as well: Challenges of HexaCTF and of cert-manager, Projects of
// OpenShift, Applications of Argo CD, Gateways of Istio. Which one kubectl takes depends on what a cluster has.
var ambiguous = regexp.MustCompile("\\bkubectl (explain|get|describe|edit|delete|patch|label|annotate|wait)( [^\n\"`]*?)?[ ,](challenges?|projects?|applications?|gateways?)([ /,\"`\n]|[.]spec|[.]status|$)")

func TestCommandsNameOneKind(t *testing.T) {
	files := pages(t)
	for _, folder := range []string{"cmd/kubectl-berg", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".go" {
				files = append(files, strings.TrimPrefix(filepath.ToSlash(path), root+"/"))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		for _, m := range ambiguous.FindAllString(string(read(t, file)), -1) {
			t.Errorf("%s: %q: name the API group, as in challenges.berg.norelect.ch, or a short name", file, m)
		}
	}
	for _, command := range []string{"kubectl explain challenge.spec.containers", "kubectl get challenges -A", "kubectl edit challenge web", "kubectl get ci,challenges", "kubectl describe gateway x", "kubectl get projects"} {
		if !ambiguous.MatchString(command) {
			t.Errorf("%q passes", command)
		}
	}
}
