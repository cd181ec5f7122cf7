package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/kube"
)

// stage is a command that must pass: a row of the table.
type stage struct {
	name    string
	command []string
	// after are stages that must have passed before. They stand before it in the list.
	after []string
	// usual is how long it takes when what it needs is built; of a build, how long that takes.
	usual time.Duration
	// cpu is for stages that compute more than they wait: one at a time runs, with a lower priority.
	cpu bool
	// node is for stages with real pods: two at a time run.
	node bool
	// root is for stages that only root can run.
	root bool
	// always is for stages that every change must pass. They also run on a machine where time is short.
	always bool
	// scope is what can alter the result. Stages without one run when a stage needs them.
	scope *scope
	// shared is the name of a suite of make e2e or e2e-network: all that run on a cluster are one stage, see merge.
	shared string
	// clusters are the names of what it starts and should remove.
	clusters []string
}

// scope is the part of the repository on which a stage depends, see reach.go.
type scope struct {
	// tests are folders of Go packages whose tests it runs.
	tests []string
	// programs are folders of Go packages that it runs as programs.
	programs []string
	// paths begin the names of other files that it reads.
	paths []string
	// everything is for stages that look at all API groups.
	everything bool
}

// Where most stages depend on: the clusters, and the operator as a program.
const (
	cluster  = "test/cluster"
	operator = "cmd/berg-operator"
)

// How long the suites below test/integration take while others run.
var integrationTimes = map[string]time.Duration{
	"berg/apply": 11 * time.Minute,
	"berg/life":  11 * time.Minute,
	"berg/queue": 11 * time.Minute,
	"berg/check": 8 * time.Minute,
	"operator":   9 * time.Minute,
	"quix":       4 * time.Minute,
	"plugin":     4 * time.Minute,
	"berg/docs":  time.Minute,
	"api":        3 * time.Minute,
	"builds":     2 * time.Minute,
}

// suite is a folder of test/e2e whose tests run on a cluster that it shares with others.
type suite struct {
	name  string
	usual time.Duration
	scope scope
}

// The suites that share one cluster of profile node, in the order in which they run, and how long each takes. make e2e
// runs them: SUITES in hack/make/journeys.mk.
var journeys = []suite{
	{"berg", 8 * time.Minute, scope{}},
	{"api", time.Minute, scope{paths: []string{"config/berg/api"}, programs: []string{"cmd/berg-api"}}},
	{"operator", 2 * time.Minute, scope{everything: true}},
	{"quix", time.Minute, scope{}},
	{"hexactf", 3 * time.Minute, scope{}},
	{"tunnel", 3 * time.Minute, scope{paths: []string{"docs/tunnel"}, programs: []string{"cmd/berg-tunnel"}}},
	{"helm", 2 * time.Minute, scope{paths: []string{"deploy/*.yaml", "deploy/helm", "docs/operations.md"}}},
}

// The suites with specs for a data plane, which share one cluster of profile network. make e2e-network runs them.
var attacks = []suite{
	{"berg", 7 * time.Minute, scope{paths: []string{"config/berg/api"}, programs: []string{"cmd/berg-api"}}},
	{"hexactf", 90 * time.Second, scope{}},
	{"tunnel", 90 * time.Second, scope{programs: []string{"cmd/berg-tunnel"}}},
}

// stages lists everything that a change must pass. Of what can start, the first in the list does: what often fails
// comes first, then what takes long.
func stages(suites []string, isBare bool) []stage {
	const verified, images = "generated files", "programs and images"
	list := []stage{
		{name: "system packages", command: []string{"hack/packages", "base"}, cpu: true, always: true, usual: 5 * time.Second},
		{name: "tools", command: []string{"make", "tools"}, cpu: true, always: true, after: []string{"system packages"}, usual: time.Minute},
		// It writes the files that it compares, so nothing may read them at the same time.
		{name: verified, command: []string{"make", "verify-generated"}, cpu: true, always: true, after: []string{"tools"}, usual: time.Minute},
	}
	build := func(profile string, usual time.Duration) stage {
		return stage{
			name: "build: " + profile, command: []string{"go", "run", "./" + cluster, "build", "--profile", profile},
			cpu: true, root: profile != "simulated", after: []string{verified}, usual: usual,
		}
	}
	builds := []stage{
		{
			name: "packages of nodes", command: []string{"hack/packages", "node", "olm", "network", "tekton", "kafka", "clients", "platforms", "resolvers", "jails", "browser", "axe", "site"},
			cpu: true, root: true, after: []string{verified}, usual: 40 * time.Second,
		},
		build("node", 3*time.Minute), build("network", 9*time.Minute), build("olm", 6*time.Minute), build("tekton", 6*time.Minute),
		{name: images, command: []string{"make", "build", "image", "images", "tunnel-image", "api-image"}, cpu: true, after: []string{verified}, usual: time.Minute},
	}
	checks := []stage{
		// The linter runs every analyzer of go vet.
		{name: "lint", command: []string{"make", "lint"}, cpu: true, always: true, after: []string{verified}, usual: 90 * time.Second},
		{name: "unit tests", command: []string{"make", "test-unit"}, cpu: true, always: true, after: []string{verified}, usual: 3 * time.Minute},
	}
	// It works on a copy of the tree. The code of an API group reaches it through generated files only.
	release := stage{
		name: "the next release", command: []string{"make", "verify-release"}, cpu: true, after: []string{verified}, usual: 80 * time.Second,
		scope: &scope{
			tests:    []string{"test/conform/compatibility"},
			programs: []string{"hack/release"},
			paths:    []string{"hack", "config", "bundle", "bundle.Dockerfile", "catalog", "deploy", "docs", "CHANGELOG.md", "PROJECT"},
		},
	}
	list = append(list, build("simulated", 12*time.Minute))
	if isBare { // the builds take half an hour: an error in the code shows before them
		list = append(append(list, checks...), builds...)
	} else {
		list = append(append(list, builds...), checks...)
	}
	list = append(list, release)

	var used []string
	// Stages with real pods first: only some run in parallel, and together they take longest.
	// -o: the images are built already.
	withImages := []string{"make", "-o", "image", "-o", "images", "-o", "tunnel-image", "-o", "api-image"}
	on := func(prefix, profile, variable, target string, suites []suite) {
		for _, suite := range suites {
			s := onNode(prefix+suite.name, profile, "test/e2e/"+suite.name, suite.usual, suite.scope)
			s.shared, s.clusters = suite.name, []string{clusterName(variable)}
			s.command = append(slices.Clone(withImages), target, "E2E="+suite.name)
			list = append(list, s)
			if profile == "" {
				used = append(used, s.name)
			}
		}
	}
	on("journeys: ", "", "E2E_CLUSTER", "e2e", journeys)
	on("attacks: ", "network", "NETWORK_CLUSTER", "e2e-network", attacks)
	olm := onNode("journeys with OLM", "olm", "test/e2e/olm", 10*time.Minute, scope{
		programs: []string{"test/scorecard", "cmd/berg-api"}, paths: []string{"bundle", "bundle.Dockerfile", "deploy/packages", "catalog", "config", "hack/test-releases", "hack/operator-sdk"},
	})
	olm.command = []string{"make", "-o", "images", "e2e-olm"}
	tekton := onNode("builds with Tekton", "tekton", "test/e2e/kibaship", 8*time.Minute, scope{})
	tekton.command = []string{"make", "-o", "image", "e2e-kibaship"}
	list = append(list, olm, tekton)

	for _, suite := range suites {
		s := simulated("integration: "+suite, "test/integration/"+suite, known(suite))
		s.command = []string{"make", "test-integration-" + dashed(suite)}
		s.clusters = []string{clusterName("TEST_CLUSTER") + "-" + dashed(suite)}
		if suite == "berg/docs" {
			s.scope.paths = []string{"docs", "README.md"}
		}
		if suite == "api" {
			s.scope.programs = append(s.scope.programs, "docs/clients/go")
			s.scope.paths = []string{"docs/clients", "docs/clients.md"}
		}
		if suite == "operator" {
			s.scope.everything, s.scope.paths = true, []string{"bundle", "deploy/packages", "config/scorecard"}
		}
		list, used = append(list, s), append(used, s.name)
	}

	page := simulated("the page of the evening", "", 3*time.Minute)
	page.command, page.clusters = []string{"make", "test-evening"}, []string{clusterName("TEST_CLUSTER") + "-evening"}
	page.root, page.after = true, append(page.after, "packages of nodes") // the browser is one of them
	page.scope = &scope{programs: []string{cluster, "cmd/berg-api"}, paths: []string{"test/conform/evening"}}
	list = append(list, page,
		// It skips what is not built.
		stage{
			name: "clusters", command: []string{"make", "test-cluster"}, after: []string{"build: simulated"}, usual: 3 * time.Minute,
			scope: &scope{tests: []string{cluster}, paths: []string{cluster}},
		},
	)

	for _, family := range []string{"berg", "hexactf", "tunnel", "kibaship"} {
		dir := map[bool]string{true: "test/measure/chaos", false: "test/integration/" + family}[family == "berg"]
		s := simulated("storm: "+family, dir, 2*time.Minute)
		s.root = family == "hexactf" // it needs packages for Kafka
		s.command = []string{"make", "-o", "build", "chaos-" + family, "SEED=1", "LIVES=40", "STORM=45s", "TEST_CLUSTER=ci-" + family}
		s.clusters = []string{"ci-" + family + "-chaos"}
		if family == "berg" {
			s.after = append(s.after, images)
			s.scope.programs = append(s.scope.programs, operator)
		}
		if s.root {
			s.after = append(s.after, "packages of nodes")
		}
		list = append(list, s)
	}
	measured := simulated("requests per instance", "test/measure/load", 45*time.Second)
	measured.command, measured.clusters = []string{"make", "-o", "build", "load-smoke"}, []string{clusterName("TEST_CLUSTER") + "-load"}
	measured.after = append(measured.after, images)
	measured.scope.programs = append(measured.scope.programs, operator)
	return append(list,
		measured,
		stage{
			name: "messages to Kafka", command: []string{"make", "test-kafka"}, root: true, after: []string{"packages of nodes"}, usual: 2 * time.Minute,
			scope: &scope{tests: []string{"test/e2e/kafka"}},
		},
		stage{
			name: "a full tunnel", command: []string{"make", "stress-tunnel"}, after: []string{verified}, usual: 30 * time.Second,
			scope: &scope{tests: []string{"internal/tunnel/proxy"}},
		},
		stage{
			name: "the site of the documentation", command: []string{"make", "test-docs-site"}, root: true, after: []string{"packages of nodes"}, usual: 30 * time.Second,
			scope: &scope{paths: []string{"docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "hack/docs-site", "test/conform/evening"}},
		},
		stage{
			name: "signatures", command: []string{"make", "verify-signatures"}, after: []string{verified}, usual: 20 * time.Second,
			scope: &scope{paths: []string{"hack/sign", "hack/verify-signatures", "test/cluster/components/image"}},
		},
		// What is granted and not used shows only when all have run: a change of a role makes all run.
		stage{
			name: "rights", command: []string{"make", "rights"}, root: true, after: used, usual: 10 * time.Second,
			scope: &scope{tests: []string{"test/measure/rights"}, paths: []string{"config/*/rbac", "config/*/*/rbac", "config/rbac"}},
		},
	)
}

// simulated is a stage on a cluster with simulated nodes.
func simulated(name, tests string, usual time.Duration) stage {
	return stage{
		name: name, after: []string{"generated files", "build: simulated"}, usual: usual,
		scope: &scope{tests: []string{tests}, programs: []string{cluster}},
	}
}

// onNode is a stage on a cluster with real pods, in which the operator is deployed.
func onNode(name, profile, tests string, usual time.Duration, s scope) stage {
	s.tests = append(s.tests, tests)
	s.programs = append(s.programs, cluster, operator)
	s.paths = append(s.paths, "test/samples/images")
	result := stage{
		name: name, root: true, node: true, usual: usual, scope: &s,
		after: []string{"packages of nodes", "build: node", "programs and images"},
	}
	if profile != "" {
		result.after = append(result.after, "build: "+profile)
		result.clusters = []string{clusterName(map[string]string{"network": "NETWORK_CLUSTER", "olm": "OLM_CLUSTER", "tekton": "KIBASHIP_CLUSTER"}[profile])}
	}
	return result
}

// alone is the command as a person runs it: what other stages build, as -o says, is built first.
func (s stage) alone() string {
	return builtElsewhere.ReplaceAllString(strings.Join(s.command, " "), "")
}

var builtElsewhere = regexp.MustCompile(` -o \S+`)

// merge makes one stage of those that share a cluster. What needs one of them needs all.
func merge(list []stage) []stage {
	var merged []stage
	first := map[string]int{}  // of a cluster, in merged
	within := map[string]int{} // of a stage, in merged
	for _, s := range list {
		at := len(merged)
		if s.shared != "" {
			if n, ok := first[s.clusters[0]]; ok {
				at = n
			} else {
				first[s.clusters[0]] = at
			}
			within[s.name] = at
		}
		if at == len(merged) {
			s.after = slices.Clone(s.after)
			merged = append(merged, s)
			continue
		}
		one := &merged[at]
		one.name, one.usual = one.name+" "+s.shared, one.usual+s.usual
		one.command[len(one.command)-1] += " " + s.shared
	}
	for _, s := range merged {
		for n, need := range s.after {
			if at, ok := within[need]; ok {
				s.after[n] = merged[at].name
			}
		}
	}
	return merged
}

// known is how long an integration suite takes; one that is newer than the table five minutes.
func known(suite string) time.Duration { return cmp.Or(integrationTimes[suite], 5*time.Minute) }

// dashed is the name of a suite in targets and clusters.
func dashed(suite string) string { return strings.ReplaceAll(suite, "/", "-") }

// The names of clusters, unless the environment has others.
var clusterNames = map[string]string{
	"TEST_CLUSTER": "berg-ci", "E2E_CLUSTER": "berg-ci-e2e", "OLM_CLUSTER": "berg-ci-olm",
	"NETWORK_CLUSTER": "berg-ci-network", "KIBASHIP_CLUSTER": "berg-ci-kibaship",
}

func clusterName(variable string) string { return cmp.Or(os.Getenv(variable), clusterNames[variable]) }

// environment is what the commands have in addition to the environment of this process.
func environment() []string {
	env := []string{
		"GINKGO_NO_COLOR=TRUE", "NO_COLOR=1", // colours are noise in a log
		"TESTARGS=" + cmp.Or(os.Getenv("TESTARGS"), "-vet=off"),        // the stage "lint" runs all of vet
		"TEST_TIME_SCALE=" + cmp.Or(os.Getenv("TEST_TIME_SCALE"), "3"), // stages take time from each other: test/lib/limits
	}
	for _, variable := range slices.Sorted(maps.Keys(clusterNames)) {
		env = append(env, variable+"="+clusterName(variable))
	}
	return env
}

// integrationSuites are the folders below test/integration that hold tests, the longest first: what starts last should
// end soon.
func integrationSuites(root string) ([]string, error) {
	below := filepath.Join(root, "test", "integration")
	var suites []string
	for _, pattern := range []string{"*/*_test.go", "*/*/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(below, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			suites = append(suites, strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), filepath.ToSlash(below)+"/"))
		}
	}
	if len(suites) == 0 {
		return nil, errors.New("no folder below test/integration holds tests")
	}
	slices.Sort(suites)
	suites = slices.Compact(suites)
	slices.SortStableFunc(suites, func(a, b string) int { return cmp.Compare(known(b), known(a)) })
	return suites, nil
}

// bare reports whether a part of a cluster that a stage may need is not built yet: then the builds take most of the
// time that a run may take.
func bare(ctx context.Context) (bool, error) {
	places, err := disk.Find()
	if err != nil {
		return false, err
	}
	for _, profile := range []string{"simulated", "node", "network", "olm", "tekton"} {
		for _, part := range kube.PartsOf(profile) {
			dir, err := build.Dir(ctx, places, part)
			if err != nil {
				return false, err
			}
			if !disk.Exists(dir) {
				return true, nil
			}
		}
	}
	return false, nil
}
