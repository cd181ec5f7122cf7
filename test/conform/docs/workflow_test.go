package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var makeCall = regexp.MustCompile(`\bmake((?: --silent)?(?: [a-z][a-z0-9-]*)+)`)

// TestWorkflowsCallTargetsThatExist reads the workflows of the build service: it calls make, with targets that there are, and
// programs of others in a stated version.
func TestWorkflowsCallTargetsThatExist(t *testing.T) {
	var targets []string
	for _, part := range glob(t, "hack/make/*.mk") {
		for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(string(read(t, part)), -1) {
			targets = append(targets, m[1])
		}
	}
	workflows := glob(t, ".github/workflows/*.yaml")
	if len(workflows) == 0 {
		t.Fatal("there are no workflows")
	}
	for _, path := range workflows {
		var workflow struct {
			Permissions map[string]string `json:"permissions"`
			Jobs        map[string]struct {
				Steps []struct{ Uses, Run string } `json:"steps"`
			} `json:"jobs"`
		}
		if err := yaml.Unmarshal(read(t, path), &workflow); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if workflow.Permissions == nil || len(workflow.Permissions) > 0 {
			t.Errorf("%s gives rights to every job: %v", path, workflow.Permissions)
		}
		called := 0
		for _, job := range workflow.Jobs {
			for _, step := range job.Steps {
				// Who may move a tag would run in a job that signs and publishes.
				if step.Uses != "" && !regexp.MustCompile(`@[0-9a-f]{40}$`).MatchString(step.Uses) {
					t.Errorf("%s uses %s, which is no commit", path, step.Uses)
				}
				for _, m := range makeCall.FindAllStringSubmatch(step.Run, -1) {
					for _, target := range strings.Fields(strings.Replace(m[1], "--silent", "", 1)) {
						called++
						if !slices.Contains(targets, target) {
							t.Errorf("%s calls make %s, which does not exist", path, target)
						}
					}
				}
			}
		}
		if called == 0 {
			t.Errorf("%s calls no target of make", path)
		}
		for line := range strings.Lines(string(read(t, path))) {
			if strings.Contains(line, "uses: ") && !regexp.MustCompile(` # v\d+\.\d+\.\d+$`).MatchString(strings.TrimSpace(line)) {
				t.Errorf("%s does not say the version of the commit: %s", path, line)
			}
		}
	}
}
