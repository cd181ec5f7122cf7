package doctor

import (
	"fmt"
	"strings"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// The setting and the policy of prepared instances.
const (
	warmLimit = "CHALLENGE_WARM_MAX_INSTANCES"
	// warmPolicy is the admission policy of config/berg/warm, which is applied together with the roles.
	warmPolicy = "berg-operator-berg-warm-pods"
)

// PreparedInstances names the Challenges that ask for prepared instances and have none ready. It reports nothing without such a Challenge.
func PreparedInstances(s Survey) []Result {
	const check = "prepared instances"
	asking, missing := 0, []string{}
	for n := range s.Challenges {
		c := view.NewChallenge(&s.Challenges[n], nil)
		if !c.AsksForPrepared {
			continue
		}
		asking++
		if c.Unprepared != "" {
			missing = append(missing, fmt.Sprintf("Challenge %s: %s", c.ID(), c.Unprepared))
		}
	}
	limit, known := s.Setting(warmLimit)
	switch {
	case asking == 0:
		return nil
	case known && limit == "0":
		return result(check, console.Warning, fmt.Sprintf("%d Challenges ask for them, and CHALLENGE_WARM_MAX_INSTANCES is 0: none is made", asking),
			"Apply config/berg/warm, then set CHALLENGE_WARM_MAX_INSTANCES: docs/berg/warm.md.")
	case limit != "0" && s.Policies[warmPolicy].Gap != "":
		return result(check, console.Problem, fmt.Sprintf("%d Challenges ask for them, and config/berg/warm is not in force: %s", asking, s.Policies[warmPolicy].Gap),
			"kubectl apply -k config/berg/warm. With the setting alone, no new pod of the operator starts.")
	case len(missing) > 0:
		return result(check, console.Warning, strings.Join(missing, "; "), "docs/berg/warm.md explains the messages.")
	}
	return result(check, console.OK, fmt.Sprintf("ready for all %d Challenges that ask for them", asking), "")
}
