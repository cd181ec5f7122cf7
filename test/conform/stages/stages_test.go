// Package stages tests which stages of hack/ci run when a file changes.
package stages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/bergctf/berg-operator/"

func run(t *testing.T, input string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stderr = "../../..", strings.NewReader(input), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return string(out)
}

// reaches returns a function that reports whether a change of a file reaches a stage or suite.
func reaches(t *testing.T, file string) func(name string) bool {
	t.Helper()
	patterns := strings.Fields(run(t, file+"\n", "hack/ci/reach"))
	return func(name string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool {
			start, isPattern := strings.CutSuffix(pattern, "%")
			return pattern == name || isPattern && strings.HasPrefix(name, start)
		})
	}
}

// suiteIn returns what reach calls the suite in a folder; "" if there is none.
func suiteIn(folder string) string {
	below, isIntegration := strings.CutPrefix(folder, "test/integration/")
	name, isE2E := strings.CutPrefix(folder, "test/e2e/")
	switch {
	case isIntegration:
		return "integration/" + below
	case name == "kibaship":
		return "tekton"
	case name == "olm" || name == "kafka":
		return name
	case isE2E && !strings.Contains(name, "/"):
		return "journeys/" + name
	}
	return ""
}

var (
	operator = regexp.MustCompile(`^(internal/(kit|operator|config)|cmd/berg-operator|test)/`)
	program  = regexp.MustCompile(`^(api|internal|cmd|test)/`)
)

// TestAChangeRunsTheSuitesThatImportIt compares the filters with go list. Suites about installing do not depend on the code of
// API groups.
func TestAChangeRunsTheSuitesThatImportIt(t *testing.T) {
	reach := map[string]func(string) bool{}
	list := run(t, "", "go", "list", "-f", "{{.ImportPath}} {{join .TestImports \" \"}} {{join .XTestImports \" \"}}", "./test/...")
	for line := range strings.Lines(strings.ReplaceAll(list, module, "")) {
		packages := strings.Fields(line) // the folder itself is the first
		suite := suiteIn(packages[0])
		for _, imported := range packages {
			installs := suite == "journeys/helm" || suite == "olm"
			if suite == "" || !program.MatchString(imported) || installs && !operator.MatchString(imported) {
				continue
			}
			if reach[imported] == nil {
				reach[imported] = reaches(t, imported+"/some.go")
			}
			if !reach[imported](suite) {
				t.Errorf("%s imports %s, whose change does not reach %s", packages[0], imported, suite)
			}
		}
	}
	if len(reach) < 50 {
		t.Errorf("only %d imports were found", len(reach))
	}
}

func TestFilters(t *testing.T) {
	berg := []string{"integration/berg/life", "integration/berg/queue", "integration/berg/apply", "integration/plugin", "integration/api", "journeys/berg", "attacks/berg"}
	all := append([]string{"integration/quix", "journeys/helm", "olm", "tekton", "page", "requests", "chaos-berg"}, berg...)
	everything := append([]string{"clusters", "signatures", "site", "rights", "release"}, all...)
	for file, test := range map[string]struct{ yes, no []string }{
		"internal/berg/challengeinstance/build.go":        {yes: berg, no: []string{"olm", "tekton", "integration/quix", "journeys/helm", "page", "release", "rights"}},
		"internal/berg/check/job.go":                      {yes: []string{"integration/berg/check", "journeys/berg"}, no: []string{"integration/berg/life", "olm", "requests"}},
		"internal/berg/family_test.go":                    {no: everything},
		"internal/quix/environment/plan.go":               {yes: []string{"integration/quix", "journeys/quix", "integration/operator"}, no: append([]string{"olm", "tekton"}, berg...)},
		"internal/hexactf/kafka/sender.go":                {yes: []string{"kafka", "integration/hexactf", "chaos-hexactf"}, no: berg},
		"internal/tunnel/proxy/server.go":                 {yes: []string{"full-tunnel", "attacks/tunnel", "chaos-tunnel"}, no: berg},
		"internal/kit/apply/apply.go":                     {yes: all, no: []string{"clusters", "site", "rights"}},
		"cmd/kubectl-berg/command/why.go":                 {yes: []string{"integration/plugin", "journeys/berg"}, no: []string{"integration/berg/life", "attacks/berg"}},
		"test/integration/berg/queue/queue_test.go":       {yes: []string{"integration/berg/queue"}, no: []string{"integration/berg/life", "journeys/berg"}},
		"test/integration/builds/testdata/some.yaml":      {yes: []string{"integration/builds"}, no: berg},
		"test/cluster/kube/up.go":                         {yes: append([]string{"clusters"}, all...)},
		"config/quix/crd/bases/quix.io_environments.yaml": {yes: []string{"integration/quix", "olm", "release"}, no: berg},
		"config/quix/rbac/role.yaml":                      {yes: append([]string{"rights"}, all...)},
		"docs/berg/challenge.md":                          {yes: []string{"integration/berg/docs", "site"}, no: []string{"integration/berg/life", "journeys/berg"}},
		"test/conform/docs/docs_test.go":                  {no: everything},
		"go.mod":                                          {yes: everything},
		"hack/ci/stages.mk":                               {yes: everything},
		"an unknown file":                                 {yes: everything},
	} {
		reach := reaches(t, file)
		for _, name := range test.yes {
			if !reach(name) {
				t.Errorf("%s does not reach %s", file, name)
			}
		}
		for _, name := range test.no {
			if reach(name) {
				t.Errorf("%s reaches %s", file, name)
			}
		}
	}
}

// TestEverySuiteHasAStage wants suites with a spec for the network profile among the attacks, too.
func TestEverySuiteHasAStage(t *testing.T) {
	t.Setenv("PLAN", "1")
	plan := strings.ReplaceAll(run(t, "", "make", "--no-print-directory", "-f", "hack/ci/stages.mk", "REACHED=%", "chosen"), `\ `, " ")
	t.Chdir("../../..")
	labelled := regexp.MustCompile(`Label\("(network|isolation)"`)
	for _, pattern := range []string{"test/e2e/*/*_test.go", "test/integration/*/*_test.go", "test/integration/*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			kind, name, _ := strings.Cut(suiteIn(filepath.Dir(file)), "/")
			want := map[string]string{"integration": `INTEGRATION=[^=]*\b` + name + `\b`, "journeys": `^journeys\t.*E2E=[^=]*\b` + name + `\b`}[kind]
			if want == "" {
				want = "^" + kind + `\t`
			}
			if !regexp.MustCompile("(?m)" + want).MatchString(plan) {
				t.Errorf("no stage runs %s", file)
			}
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if labelled.Match(content) && !regexp.MustCompile(`(?m)^attacks\t.*E2E=[^=]*\b`+name+`\b`).MatchString(plan) {
				t.Errorf("%s has specs for a data plane, which attacks does not run", file)
			}
		}
	}
}
