package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/disk"
)

func TestStagesAreWellFormed(t *testing.T) {
	t.Chdir("../..")
	suites, err := integrationSuites(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, isBare := range []bool{true, false} {
		list := stages(suites, isBare)
		seen := map[string]bool{}
		for _, s := range list {
			if seen[s.name] {
				t.Errorf("two stages are called %q", s.name)
			}
			for _, need := range s.after {
				if !seen[need] {
					t.Errorf("%q needs %q, which is not before it", s.name, need)
				}
			}
			if s.usual == 0 || len(s.command) == 0 {
				t.Errorf("%q has no time or no command", s.name)
			}
			if !s.root && slices.ContainsFunc(list, func(other stage) bool { return other.root && slices.Contains(s.after, other.name) }) {
				t.Errorf("%q does not say that it needs root", s.name)
			}
			seen[s.name] = true
			for _, name := range s.clusters {
				if !disk.ValidName.MatchString(name) {
					t.Errorf("no cluster can be called %q", name)
				}
			}
		}
		for _, dir := range []string{"test/integration", "test/e2e"} { // nothing is forgotten
			files, err := filepath.Glob(dir + "/*/suite_test.go")
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, file := range files {
				if !slices.ContainsFunc(list, func(s stage) bool { return s.scope != nil && slices.Contains(s.scope.tests, filepath.Dir(file)) }) {
					t.Errorf("no stage runs %s", filepath.Dir(file))
				}
			}
		}
	}
}

func TestSuitesShareClusters(t *testing.T) {
	list := stages([]string{"quix"}, false)
	why := map[string]string{"journeys: berg": "x", "journeys: operator": "x", "journeys: tunnel": "x", "attacks: berg": "x"}
	left := slices.DeleteFunc(slices.Clone(list), func(s stage) bool { return why[s.name] != "" })
	merged := merge(left)
	for name, command := range map[string]string{
		"journeys: api quix hexactf helm": "e2e E2E=api quix hexactf helm",
		"attacks: hexactf tunnel":         "e2e-network E2E=hexactf tunnel",
	} {
		n := slices.IndexFunc(merged, func(s stage) bool { return s.name == name })
		if n < 0 {
			t.Errorf("there is no stage %q", name)
			continue
		}
		if got := strings.Join(merged[n].command[len(merged[n].command)-2:], " "); got != command {
			t.Errorf("%q, want %q", got, command)
		}
	}
	if got, want := len(left)-len(merged), 4; got != want {
		t.Errorf("%d stages fewer, want %d", got, want)
	}
	for _, s := range merge(stages([]string{"quix"}, false)) {
		if s.name == "rights" && !slices.Contains(s.after, "journeys: berg api operator quix hexactf tunnel helm") {
			t.Errorf("rights needs %v", s.after)
		}
	}
}

// TestSuitesForADataPlaneAreNamed wants each suite with a spec for the network profile to be run there.
func TestSuitesForADataPlaneAreNamed(t *testing.T) {
	t.Chdir("../..")
	files, err := filepath.Glob("test/e2e/*/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	want := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if labelled.Match(content) {
			want[filepath.Base(filepath.Dir(file))] = true
		}
	}
	got := map[string]bool{}
	for _, one := range attacks {
		got[one.name] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("stages run %v, labelled are specs of %v", got, want)
	}
}

var labelled = regexp.MustCompile(`Label\("(network|isolation)"`)

func TestIntegrationSuites(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"quix/role_test.go", "berg/life/a_test.go", "berg/queue/b_test.go", "new/new_test.go", "lib/lib.go", "README.md"} {
		file = filepath.Join(root, "test", "integration", file)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := integrationSuites(root)
	if want := []string{"berg/life", "berg/queue", "new", "quix"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := integrationSuites(t.TempDir()); err == nil {
		t.Error("no test at all is not an error")
	}
}

// TestTheWholeTakesForty plays the stages with their usual times.
func TestTheWholeTakesForty(t *testing.T) {
	t.Chdir("../..")
	suites, err := integrationSuites(".")
	if err != nil {
		t.Fatal(err)
	}
	list := warm(stages(suites, false))
	if span := play(merge(list)); span > 40*time.Minute {
		t.Errorf("everything takes %s, want at most 40 minutes", span)
	}
}

// play returns how long the stages take together, if each takes its usual time.
func play(list []stage) time.Duration {
	r := &runner{list: list, state: map[string]outcome{}}
	ends := map[string]time.Duration{}
	var now time.Duration
	for {
		for _, s := range r.startable() {
			r.state[s.name], ends[s.name] = running, now+s.usual
		}
		if len(ends) == 0 {
			return now
		}
		next := ""
		for name := range ends {
			if next == "" || ends[name] < ends[next] {
				next = name
			}
		}
		now = ends[next]
		delete(ends, next)
		r.state[next] = passed
	}
}

// TestAChangeOfOneFamilyTakesTwenty plays what a change of one file of each family reaches. Berg takes longer: its stages need
// 94 minutes of the four slots, and each of them starts an operator that contains the changed package.
func TestAChangeOfOneFamilyTakesTwenty(t *testing.T) {
	t.Chdir("../..")
	suites, err := integrationSuites(".")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for changed, limit := range map[string]time.Duration{
		"internal/berg/challengeinstance/build.go": 28 * time.Minute,
		"internal/berg/check/job.go":               28 * time.Minute,
		"internal/hexactf/challenge/plan.go":       20 * time.Minute,
		"internal/quix/environment/plan.go":        20 * time.Minute,
		"internal/kibaship/deployment/plan.go":     20 * time.Minute,
		"internal/tunnel/proxy/server.go":          20 * time.Minute,
		"internal/api/rctf/rctf.go":                20 * time.Minute,
		"cmd/kubectl-berg/command/why.go":          20 * time.Minute,
		"api/quix/v1/environment_types.go":         20 * time.Minute,
		"docs/berg/challenge.md":                   10 * time.Minute,
	} {
		if _, err := os.Stat(changed); err != nil {
			t.Fatal(err)
		}
		list := stages(suites, false)
		why := unreached(packages, list, []string{changed})
		list = warm(slices.DeleteFunc(list, func(s stage) bool { return why[s.name] != "" }))
		if span := play(merge(list)); span > limit {
			t.Errorf("a change of %s takes %s, want at most %s", changed, span, limit)
		}
	}
}

// warm makes the stages that build clusters take no time: what they build is there already.
func warm(list []stage) []stage {
	for n := range list {
		if strings.HasPrefix(list[n].name, "build: ") || list[n].name == "packages of nodes" {
			list[n].usual = 3 * time.Second
		}
	}
	return list
}
