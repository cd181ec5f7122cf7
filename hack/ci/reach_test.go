package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestReach looks at this repository: which stages run when these files have changed.
func TestReach(t *testing.T) {
	t.Chdir("../..")
	suites, err := integrationSuites(".")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := stages(suites, false)
	berg := []string{
		"integration: berg/life", "integration: berg/queue", "integration: berg/apply", "integration: berg/check", "integration: plugin",
		"journeys: berg", "attacks: berg", "storm: berg", "requests per instance",
	}
	always := []string{"system packages", "tools", "generated files", "lint", "unit tests"}
	for _, test := range []struct {
		changed string
		runs    []string
		not     []string
		all     bool
	}{
		{
			changed: "internal/quix/environment/plan.go", runs: []string{"integration: quix", "journeys: quix", "integration: operator", "journeys: operator"},
			not: append([]string{"integration: hexactf", "journeys: hexactf", "journeys: helm", "builds with Tekton", "rights", "build: network"}, berg...),
		},
		{changed: "internal/berg/challengeinstance/manifests/testdata/plan/web.yaml", runs: berg, not: []string{"integration: quix", "journeys: tunnel", "messages to Kafka"}},
		{changed: "internal/berg/berg_test.go", not: append([]string{"build: simulated"}, berg...)},
		{
			changed: "internal/kit/apply/apply.go", runs: append([]string{"integration: quix", "integration: kibaship", "builds with Tekton", "journeys: helm", "storm: tunnel"}, berg...),
			not: []string{"clusters"},
		},
		{
			changed: "internal/hexactf/kafka/sender.go", runs: []string{"messages to Kafka", "integration: hexactf", "storm: hexactf", "journeys: hexactf"},
			not: []string{"integration: quix", "integration: berg/life", "journeys: tunnel"},
		},
		{changed: "internal/tunnel/proxy/wire.go", runs: []string{"a full tunnel", "integration: tunnel", "journeys: tunnel", "storm: tunnel"}, not: berg[:6]},
		{changed: "config/quix/crd/bases/quix.io_environments.yaml", runs: []string{"integration: quix", "journeys with OLM"}, not: []string{"integration: berg/life"}},
		{changed: "config/quix/rbac/role.yaml", runs: append([]string{"rights"}, berg[:6]...)},
		{changed: "config/manager/manager.yaml", runs: append([]string{"journeys: quix", "journeys with OLM"}, berg...)},
		{changed: "docs/berg/challenge.md", runs: []string{"integration: berg/docs"}, not: []string{"integration: berg/apply", "journeys: helm", "build: node"}},
		{changed: "docs/clients/typescript/package-lock.json", runs: []string{"integration: api"}, not: berg[:6]},
		{changed: "api/client/clientset/versioned/clientset.go", runs: []string{"integration: api"}, not: berg[:6]},
		{changed: "docs/operations.md", runs: []string{"journeys: helm", "the next release"}, not: []string{"journeys: berg"}},
		{changed: "catalog/templates/berg-operator.yaml", runs: []string{"the next release"}, not: []string{"journeys: berg"}},
		{changed: "internal/berg/challengeinstance/build.go", runs: berg, not: []string{"the next release"}},
		{changed: "deploy/helm/berg-operator/values.yaml", runs: []string{"journeys: helm"}, not: []string{"integration: berg/life", "journeys: berg"}},
		{changed: "deploy/packages/hexactf-operator/bundle/manifests/hexactf-operator.clusterserviceversion.yaml", runs: []string{"journeys with OLM"}, not: []string{"journeys: helm"}},
		{changed: "bundle/manifests/berg-operator.clusterserviceversion.yaml", runs: []string{"journeys with OLM"}, not: []string{"journeys: helm"}},
		{changed: "cmd/kubectl-berg/command/why.go", runs: []string{"integration: plugin", "journeys: berg"}, not: []string{"integration: berg/life", "journeys: quix"}},
		{changed: "test/integration/berg/queue/queue_test.go", runs: []string{"integration: berg/queue"}, not: []string{"integration: berg/life", "build: node"}},
		{changed: "test/lib/bergtest/bergtest.go", runs: berg[:4], not: []string{"integration: quix"}},
		{changed: "test/cluster/kube/up.go", runs: append([]string{"clusters", "integration: quix", "journeys with OLM"}, berg...), not: []string{"a full tunnel"}},
		{changed: "test/cluster/components/image/main.go", runs: append([]string{"integration: quix"}, berg...)},
		{changed: "test/conform/docs/docs_test.go", not: append([]string{"build: simulated"}, berg...)},
		{changed: "cmd/berg-operator/families/families.go", runs: append([]string{"integration: quix", "journeys: helm"}, berg...)},
		{changed: "api/quix/v1/environment_types.go", runs: []string{"integration: quix", "journeys: quix", "integration: operator"}, not: berg[:6]},
		{changed: "api/berg/v1/port.go", runs: append([]string{"journeys: api", "integration: api"}, berg...), not: []string{"integration: quix", "journeys: tunnel"}},
		{changed: "go.mod", all: true},
		{changed: "api/go.mod", all: true},
		{changed: "hack/make/tests.mk", all: true},
		{changed: "hack/ci/stages.go", all: true},
		{changed: "something/new.yaml", all: true},
	} {
		why := unreached(packages, list, []string{test.changed})
		for _, name := range slices.Concat(test.runs, always) {
			if why[name] != "" {
				t.Errorf("%s: %q does not run", test.changed, name)
			}
		}
		for _, name := range test.not {
			if why[name] == "" {
				t.Errorf("%s: %q runs", test.changed, name)
			}
		}
		if test.all && len(why) > 0 {
			t.Errorf("%s: these do not run: %v", test.changed, why)
		}
		for _, s := range list { // what runs has what it needs
			for _, need := range s.after {
				if why[s.name] == "" && why[need] != "" {
					t.Errorf("%s: %q runs without %q", test.changed, s.name, need)
				}
			}
		}
	}
}

// TestNamesOfPaths wants the rules to name what exists.
func TestNamesOfPaths(t *testing.T) {
	t.Chdir("../..")
	suites, err := integrationSuites(".")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	paths := append([]string{}, reachesAll...)
	for _, s := range stages(suites, false) {
		if s.scope == nil {
			continue
		}
		for _, dir := range append(s.scope.tests, s.scope.programs...) {
			if packages[dir] == nil {
				t.Errorf("%s: there is no package in %s", s.name, dir)
			}
		}
		paths = append(paths, s.scope.paths...)
	}
	for _, name := range paths {
		if !strings.Contains(name, "*") {
			if _, err := os.Stat(name); err != nil {
				t.Error(err)
			}
		}
	}
	for from, to := range runs {
		if packages[from] == nil || packages[to] == nil {
			t.Errorf("no package %s or %s", from, to)
		}
	}
}

func TestMatches(t *testing.T) {
	for name, want := range map[string]bool{
		"docs/adr/0001.md": true, "docsomething/a": false, "config/berg/rbac/role.yaml": true, "config/berg/crd/a.yaml": false, "Dockerfile": true, "bundle.Dockerfile": true,
	} {
		if got := matches([]string{"docs", "config/*/rbac", "*Dockerfile"}, name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
