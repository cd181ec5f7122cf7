package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/disk"
)

var (
	suites     = []string{"berg", "operator", "quix", "tunnel"}
	everything = partsOf("simulated", "node", "network", "olm")
	code       = []string{"internal/berg/challengeinstance/manifests/plan.go"}
)

func listed(list []stage) string {
	var found []string
	for _, s := range list {
		found = append(found, s.name)
	}
	return strings.Join(found, ", ")
}

func TestStagesAreWellFormed(t *testing.T) {
	suites, err := integrationSuites(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, withE2E := range []bool{true, false} {
		for _, missing := range [][]string{nil, everything} {
			list := stages(withE2E, suites, missing)
			clusters := map[string]bool{}
			for i, s := range list {
				if slices.ContainsFunc(list[:i], func(other stage) bool { return other.name == s.name }) {
					t.Errorf("two stages are called %q", s.name)
				}
				for _, need := range s.after {
					if !slices.ContainsFunc(list, func(other stage) bool { return other.name == need }) {
						t.Errorf("%q waits for %q, which there is not", s.name, need)
					}
				}
				if s.usual == 0 || slots[s.class] == 0 {
					t.Errorf("%q has no cost or no class", s.name)
				}
				for _, cluster := range s.clusters {
					if clusters[cluster] {
						t.Errorf("two stages make a cluster %q", cluster)
					}
					clusters[cluster] = true
					if !disk.ValidName.MatchString(cluster) {
						t.Errorf("no cluster can be called %q", cluster)
					}
				}
			}
			// All of it ends: nothing waits for itself.
			if order := simulate(list); len(order) != len(list) {
				t.Errorf("of %d stages only these can start: %v", len(list), order)
			}
		}
	}
}

// simulate returns the names of the stages in an order in which they start.
func simulate(list []stage) (order []string) {
	state := map[string]outcome{}
	for {
		next := startable(list, state)
		if len(next) == 0 {
			return order
		}
		for _, s := range next {
			order = append(order, s.name)
			state[s.name] = passed
		}
	}
}

func TestEveryPartHasATime(t *testing.T) {
	for _, part := range everything {
		if partTimes[part] == 0 {
			t.Errorf("how long does %q take to build? partTimes does not say", part)
		}
	}
}

func TestWithEverythingBuiltAllRuns(t *testing.T) {
	list := stages(true, suites, nil)
	chosen, left := within(time.Minute, list, code, nil)
	if len(left) != 0 || len(chosen) != len(list) {
		t.Errorf("left out: %s", listed(left))
	}
	if span := makespan(list, nil); span > 45*time.Minute {
		t.Errorf("all takes %s, want at most 45 minutes", span)
	}
}

func TestABareMachineFitsTheBudget(t *testing.T) {
	list := stages(true, suites, everything)
	chosen, left := within(defaultBudget, list, code, everything)
	if len(left) != 0 {
		t.Errorf("left out: %s", listed(left))
	}
	if span := makespan(chosen, everything); span > defaultBudget {
		t.Errorf("all takes %s", span)
	}
}

func TestABudgetLeavesOutWhatMattersLeast(t *testing.T) {
	list := stages(true, suites, everything)
	for name, test := range map[string]struct {
		budget  time.Duration
		changed []string
		left    []string
		kept    []string
	}{
		"the most expensive with its build": {
			budget: 75 * time.Minute, changed: code,
			left: []string{"attacks on a real data plane", "build: network"},
			kept: []string{"integration: berg", "journeys on a real node"},
		},
		"first what the change does not concern": {
			budget: 55 * time.Minute, changed: []string{"test/e2e/olm/lifecycle_test.go"},
			left: []string{"attacks on a real data plane", "clusters come and go", "build: network"},
			kept: []string{"journeys with a real OLM", "build: olm"},
		},
		"the checks always run": {
			budget: time.Minute, changed: code,
			left: []string{"integration: berg", "rights granted and used", "build: simulated"},
			kept: []string{"tools", "generated files", "vet and lint", "unit tests"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, left := within(test.budget, list, test.changed, everything)
			for _, want := range test.left {
				if !slices.ContainsFunc(left, func(s stage) bool { return s.name == want }) {
					t.Errorf("%q is kept: left out are only %s", want, listed(left))
				}
			}
			for _, want := range test.kept {
				if !slices.ContainsFunc(chosen, func(s stage) bool { return s.name == want }) {
					t.Errorf("%q is left out; kept are %s", want, listed(chosen))
				}
			}
			if len(chosen)+len(left) != len(list) {
				t.Errorf("%d stages are kept and %d left out of %d", len(chosen), len(left), len(list))
			}
			for _, s := range chosen {
				for _, need := range s.after {
					if slices.ContainsFunc(left, func(l stage) bool { return l.name == need }) {
						t.Errorf("%q is kept without %q", s.name, need)
					}
				}
			}
		})
	}
}

func TestStartable(t *testing.T) {
	list := []stage{
		{name: "first", class: work},
		{name: "second", class: work},
		{name: "later", class: suite, after: []string{"first"}},
		{name: "images", class: suite, holds: "dist/images"},
		{name: "images too", class: suite, holds: "dist/images"},
		{name: "a", class: suite},
		{name: "b", class: suite},
		{name: "c", class: suite},
		{name: "d", class: suite},
		{name: "wide", class: suite, width: 2},
	}
	state := map[string]outcome{}
	if got, want := listed(startable(list, state)), "first, images, a, b"; got != want {
		t.Errorf("at first %s, want %s", got, want)
	}
	state = map[string]outcome{"first": passed, "images": running, "a": failed, "b": passed}
	if got, want := listed(startable(list, state)), "second, later, c"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
	for _, done := range []string{"later", "b", "c", "d", "images too"} {
		state[done] = passed
	}
	if got, want := listed(startable(list, state)), "second, wide"; got != want {
		t.Errorf("in the end %s, want %s", got, want)
	}
	state["images"], state["wide"], state["c"], state["d"] = passed, running, waiting, waiting
	if got, want := listed(startable(list, state)), "second, c"; got != want {
		t.Errorf("beside a wide one %s, want %s", got, want)
	}
}

func TestMakespan(t *testing.T) {
	list := []stage{
		{name: "check", class: work, usual: 2 * time.Minute, first: time.Minute},
		{name: "build", class: work, usual: 0, builds: []string{"kwok"}},
		{name: "long", class: suite, usual: 8 * time.Minute, after: []string{"build"}},
		{name: "beside", class: suite, usual: 3 * time.Minute, after: []string{"check"}},
	}
	if got, want := makespan(list, nil), 10*time.Minute; got != want {
		t.Errorf("with all built %s, want %s", got, want)
	}
	if got, want := makespan(list, []string{"kwok", "control-plane"}), 11*time.Minute+partTimes["kwok"]; got != want {
		t.Errorf("with nothing built %s, want %s", got, want)
	}
}

func TestConcerned(t *testing.T) {
	s := stage{indifferent: []string{"docs/", "README.md"}}
	for path, want := range map[string]bool{"docs/adr/0001.md": false, "README.md": false, "docsomething.go": true, "unknown": true} {
		if got := s.concerned([]string{path}); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
	if !s.concerned([]string{"docs/metrics.md", "go.mod"}) {
		t.Error("one file that matters is enough")
	}
}

func TestIntegrationSuites(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"quix/role_test.go", "berg/a_test.go", "berg/b_test.go", "new/new_test.go", "lib/lib.go", "README.md"} {
		file = filepath.Join(root, "test", "integration", file)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := integrationSuites(root)
	if want := []string{"berg", "new", "quix"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := integrationSuites(t.TempDir()); err == nil {
		t.Error("no test at all is not an error")
	}
}
