package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// How many stages of a class run at once, a wide one counted as several.
//
// Suites keep two processors busy as they are: with more of them the whole is no shorter, and each takes so much longer
// that specs wait beyond their deadlines.
var slots = map[class]int{work: 1, suite: 3}

// The profiles of test/cluster with real nodes that a stage needs, in the order in which they are built.
var profilesOnNodes = []string{"node", "network", "olm", "tekton"}

type class string

const (
	// work needs the processors: one such stage after the other, and behind the suites, which must not wait for them.
	work class = "work"
	// suite mostly waits, for a cluster of its own.
	suite class = "suite"
)

// stage is one row of the table: a command that must pass.
type stage struct {
	name    string
	command []string
	class   class
	// after are the names of the stages that must have passed before.
	after []string
	// usual is how long it takes where everything that it needs is built.
	usual time.Duration
	// first is what compiling adds to that on a machine that has built nothing yet: where Kubernetes is missing.
	first time.Duration
	// builds are the parts of test/cluster that it builds. They take partTimes where they are missing.
	builds []string
	// width is how many slots of its class it takes, 0 for one.
	width int
	// holds is something that only one stage at a time may use, such as a folder that it writes.
	holds string
	// clusters are the names of what it starts, and should remove.
	clusters []string
	// indifferent are paths that cannot change its result: it is the first to go when time is short, if nothing
	// else was changed. In doubt a path is not among them.
	indifferent []string
	// optional stages are left out when the budget does not reach. The others are the least that a change must pass.
	optional bool
}

// Nothing that is built or run on a cluster depends on these.
var prose = []string{"docs/", "LICENSE", "README.md", "CONTRIBUTING.md", "test/README.md", "test/cluster/README.md", ".gitignore"}

// How long the tests in a folder below test/integration take.
var integrationTimes = map[string]time.Duration{
	"berg":     14 * time.Minute,
	"operator": 9 * time.Minute,
	"hexactf":  5 * time.Minute,
	"kibaship": 5 * time.Minute,
	"quix":     4 * time.Minute,
	"plugin":   4 * time.Minute,
	"tunnel":   5 * time.Minute,
	"builds":   2 * time.Minute,
}

// suiteWidths are those of suites that make runs in several processes, each with a cluster.
var suiteWidths = map[string]int{"berg": 2}

// How long it takes to build a part of test/cluster after those before it.
var partTimes = map[string]time.Duration{
	"control-plane": minutes(10),
	"kwok":          seconds(40),
	"crds":          seconds(20),
	"node":          minutes(1),
	"image":         seconds(10),
	"coredns":       seconds(45),
	"images":        seconds(5),
	"outside":       seconds(5),
	"cilium":        minutes(5),
	"traefik":       minutes(3),
	"olm":           minutes(5),
	"olm-images":    seconds(10),
	"tekton":        minutes(4),
	"tekton-images": seconds(5),
	"kaniko":        minutes(1),
	"build-images":  seconds(5),
	"gitserver":     seconds(5),
}

// unknown is for what is newer than the tables above.
const unknown = 5 * time.Minute

func known(times map[string]time.Duration, name string) time.Duration {
	return cmp.Or(times[name], unknown)
}

// stages lists everything a change must pass, by what is worth being started first. Of what can start, the first in
// this list does; so the cheap ones that can fail come first, and then the long ones.
//
// missing are the parts of test/cluster that are not built yet. A build that has something to do waits for the checks
// of the code, unless all suites wait for it.
func stages(withE2E bool, suites, missing []string) []stage {
	packages := []string{"hack/packages", "base"}
	simulated := buildOf("simulated", nil)
	var onNodes []stage
	if withE2E {
		packages = append(packages, "node", "olm", "network", "tekton", "kafka", "platforms", "resolvers", "browser")
		before := slices.Clone(simulated.builds)
		for _, profile := range profilesOnNodes {
			s := buildOf(profile, before)
			onNodes, before = append(onNodes, s), append(before, s.builds...)
		}
	}
	list := []stage{
		{name: "system packages", command: packages, class: work, usual: seconds(5), first: seconds(40)},
		{name: "tools", command: []string{"make", "tools"}, class: work, after: []string{"system packages"}, usual: seconds(60), first: minutes(9)},
		// It writes the files that it compares: nothing may read them meanwhile.
		{name: "generated files", command: []string{"make", "verify"}, class: work, after: []string{"tools"}, usual: seconds(90), first: seconds(60)},
		simulated,
	}
	var later []stage
	for _, s := range onNodes {
		if s.cost(missing) == s.usual {
			list = append(list, s)
		} else {
			later = append(later, s)
		}
	}
	list = append(list,
		stage{name: "vet and lint", command: []string{"make", "vet", "lint"}, class: work, after: []string{"generated files"}, usual: minutes(2), first: minutes(5)},
		stage{name: "unit tests", command: []string{"make", "test-unit"}, class: work, after: []string{"generated files"}, usual: minutes(3), first: minutes(4)},
	)
	list = append(list, later...)
	var integration []string
	var narrow []stage
	for _, folder := range suites {
		integration = append(integration, "integration: "+folder)
		s := stage{
			name: "integration: " + folder, command: []string{"make", "test-integration-" + folder}, class: suite, optional: true,
			after: []string{"generated files", "build: simulated"}, usual: known(integrationTimes, folder), first: minutes(2),
			clusters: clustersOf(folder), width: suiteWidths[folder], indifferent: []string{"LICENSE", "test/e2e/", "test/measure/"},
		}
		// A wide one would wait until the end, since a narrow one takes the first slot that is free.
		if s.width > 1 {
			list = append(list, s)
		} else {
			narrow = append(narrow, s)
		}
	}
	if withE2E {
		list = append(list,
			stage{
				name: "journeys on a real node", command: []string{"make", "e2e"}, class: suite, optional: true, holds: "dist/images",
				after: []string{"generated files", "build: node"}, usual: minutes(12), first: minutes(2),
				clusters: []string{clusterName("E2E_CLUSTER")}, indifferent: slices.Concat(prose, []string{"bundle/", "catalog/", "test/integration/", "test/measure/", "test/e2e/olm/"}),
			},
			stage{
				name: "journeys with a real OLM", command: []string{"make", "e2e-olm"}, class: suite, optional: true,
				after: []string{"generated files", "build: node", "build: olm"}, usual: minutes(9), first: minutes(2),
				clusters: []string{clusterName("OLM_CLUSTER")}, indifferent: slices.Concat(prose, []string{"test/integration/", "test/measure/"}),
			},
			stage{
				name: "journeys with a real Helm", command: []string{"make", "e2e-helm"}, class: suite, optional: true,
				after: []string{"generated files", "build: node"}, usual: minutes(3), first: minutes(1),
				clusters: []string{clusterName("HELM_CLUSTER")}, indifferent: slices.Concat(prose, []string{"bundle/", "catalog/", "test/integration/", "test/measure/", "test/e2e/berg/", "test/e2e/hexactf/", "test/e2e/olm/", "test/e2e/operator/", "test/e2e/quix/"}),
			},
			stage{
				name: "journeys with a real Kafka", command: []string{"make", "e2e-hexactf"}, class: suite, optional: true, holds: "dist/images",
				after: []string{"generated files", "build: node"}, usual: minutes(6), first: minutes(2),
				clusters: []string{clusterName("HEXACTF_CLUSTER")}, indifferent: slices.Concat(prose, []string{"bundle/", "catalog/", "test/integration/", "test/measure/", "test/e2e/berg/", "test/e2e/olm/", "test/e2e/operator/", "test/e2e/quix/"}),
			},
			stage{
				name: "builds with a real Tekton", command: []string{"make", "e2e-kibaship"}, class: suite, optional: true, holds: "dist/images",
				after: []string{"generated files", "build: node", "build: tekton"}, usual: minutes(8), first: minutes(2),
				clusters: []string{clusterName("KIBASHIP_CLUSTER")}, indifferent: slices.Concat(prose, []string{"bundle/", "catalog/", "test/integration/", "test/measure/", "test/e2e/berg/", "test/e2e/hexactf/", "test/e2e/olm/", "test/e2e/operator/", "test/e2e/quix/"}),
			},
			stage{
				name: "journeys of tunnels", command: []string{"bash", "-c", `make e2e-tunnel DIST="$PWD/dist/tunnel"`}, class: suite, optional: true,
				after: []string{"generated files", "build: node"}, usual: minutes(5), first: minutes(1),
				clusters: []string{clusterName("TUNNEL_CLUSTER")}, indifferent: slices.Concat(prose, []string{"bundle/", "catalog/", "test/integration/", "test/measure/", "test/e2e/berg/", "test/e2e/hexactf/", "test/e2e/olm/", "test/e2e/operator/", "test/e2e/quix/"}),
			},
			stage{
				name: "attacks on a real data plane", command: []string{"make", "e2e-network"}, class: suite, optional: true, holds: "dist/images",
				after: []string{"generated files", "build: node", "build: network"}, usual: minutes(10), first: minutes(1),
				clusters: []string{clusterName("NETWORK_CLUSTER")}, indifferent: slices.Concat(prose, []string{"bundle/", "catalog/", "test/integration/", "test/measure/", "test/e2e/olm/"}),
			},
		)
	}
	list = append(list, narrow...)
	// It skips what is not built.
	profiles := []string{"build: simulated"}
	if withE2E {
		profiles = append(profiles, "build: node", "build: network")
	}
	list = append(list,
		stage{
			name: "clusters come and go", command: []string{"make", "test-cluster"}, class: suite, optional: true,
			after: profiles, usual: minutes(3),
			indifferent: slices.Concat(prose, []string{"api/", "bundle/", "catalog/", "cmd/", "config/", "internal/", "test/e2e/", "test/integration/", "test/measure/"}),
		},
		stage{
			name: "lives in a storm", command: []string{"make", "chaos", "SEED=1", "LIVES=40", "STORM=45s"}, class: suite, optional: true, holds: "bin/manager",
			after: []string{"generated files", "build: simulated"}, usual: minutes(7), first: minutes(1),
			clusters: []string{clusterName("TEST_CLUSTER") + "-chaos"}, indifferent: slices.Concat(prose, []string{"bundle/", "catalog/", "test/e2e/", "test/integration/"}),
		},
		stage{
			name: "requests per instance", command: []string{"make", "load-smoke"}, class: suite, optional: true, holds: "bin/manager",
			after: []string{"generated files", "build: simulated"}, usual: seconds(45), first: minutes(1),
			clusters: []string{clusterName("TEST_CLUSTER") + "-load"}, indifferent: slices.Concat(prose, []string{"bundle/", "catalog/", "test/e2e/", "test/integration/"}),
		},
	)
	list = append(list, stage{
		name: "a full tunnel", command: []string{"make", "stress-tunnel"}, class: suite, optional: true,
		after: []string{"generated files"}, usual: seconds(30), first: minutes(1),
		indifferent: slices.Concat(prose, []string{"bundle/", "catalog/", "config/", "test/"}),
	})
	if withE2E {
		list = append(list, stage{
			name: "rights granted and used", command: []string{"make", "rights"}, class: suite, optional: true,
			after: append(integration, "journeys on a real node", "journeys of tunnels"), usual: seconds(10), first: seconds(10),
		})
	}
	return list
}

// buildOf is the stage that builds what a profile of test/cluster needs and those before it have not.
func buildOf(profile string, before []string) stage {
	parts := slices.DeleteFunc(partsOf(profile), func(part string) bool { return slices.Contains(before, part) })
	return stage{
		name: "build: " + profile, command: []string{"go", "run", "./test/cluster", "build", "--profile", profile}, class: work,
		after: []string{"generated files"}, usual: seconds(3), builds: parts, optional: true,
	}
}

// mostProcesses is in how many processes, each with a cluster, make runs a suite at most.
const mostProcesses = 3

// clustersOf are the clusters that make may start for the suite of a folder.
func clustersOf(folder string) (all []string) {
	for n := range mostProcesses {
		all = append(all, fmt.Sprintf("%s-%s-%d", clusterName("TEST_CLUSTER"), folder, n+1))
	}
	return all
}

// The names of clusters, unless the environment has others.
var clusterNames = map[string]string{
	"TEST_CLUSTER": "berg-ci", "E2E_CLUSTER": "berg-ci-e2e", "OLM_CLUSTER": "berg-ci-olm", "NETWORK_CLUSTER": "berg-ci-network",
	"HEXACTF_CLUSTER": "berg-ci-hexactf", "HELM_CLUSTER": "berg-ci-helm", "KIBASHIP_CLUSTER": "berg-ci-kibaship", "TUNNEL_CLUSTER": "berg-ci-tunnel",
}

func clusterName(variable string) string {
	if set := os.Getenv(variable); set != "" {
		return set
	}
	return clusterNames[variable]
}

// environment is what the commands are given besides that of this process.
func environment() []string {
	env := []string{"GINKGO_NO_COLOR=TRUE", "NO_COLOR=1"} // colours are noise in a log
	for _, variable := range slices.Sorted(maps.Keys(clusterNames)) {
		env = append(env, variable+"="+clusterName(variable))
	}
	return env
}

// integrationSuites are the folders below test/integration that hold tests: one for each family, and the operator's.
func integrationSuites(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "test", "integration", "*", "*_test.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no folder below test/integration holds tests")
	}
	var suites []string
	for _, file := range files {
		suites = append(suites, filepath.Base(filepath.Dir(file)))
	}
	suites = slices.Compact(suites)
	// The longest first: what starts last should end soon.
	slices.SortStableFunc(suites, func(a, b string) int { return cmp.Compare(known(integrationTimes, b), known(integrationTimes, a)) })
	return suites, nil
}

// concerned tells whether one of the changed paths can change the result of the stage.
func (s stage) concerned(changed []string) bool {
	return slices.ContainsFunc(changed, func(path string) bool {
		return !slices.ContainsFunc(s.indifferent, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
	})
}

// slots is how many of its class the stage takes.
func (s stage) slots() int { return max(1, s.width) }

// cost is how long the stage takes on a machine on which these parts of test/cluster are not built yet.
func (s stage) cost(missing []string) time.Duration {
	total := s.usual
	if slices.Contains(missing, "control-plane") {
		total += s.first
	}
	for _, part := range s.builds {
		if slices.Contains(missing, part) {
			total += known(partTimes, part)
		}
	}
	return total
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }
func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
