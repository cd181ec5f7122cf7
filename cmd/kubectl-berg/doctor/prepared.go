package doctor

import (
	"fmt"
	"strings"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// preparedInstances names the Challenges that ask for prepared instances and have none ready. It reports nothing without such a Challenge.
func preparedInstances(s Survey) []Result {
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
	limit, known := s.Setting("CHALLENGE_WARM_MAX_INSTANCES")
	switch {
	case asking == 0:
		return nil
	case known && limit == "0":
		return result(check, console.Warning, fmt.Sprintf("%d Challenges ask for them, and CHALLENGE_WARM_MAX_INSTANCES is 0: none is made", asking),
			"Apply config/berg/warm, then set CHALLENGE_WARM_MAX_INSTANCES: docs/berg/warm.md.")
	case len(missing) > 0:
		return result(check, console.Warning, strings.Join(missing, "; "), "docs/berg/warm.md explains the messages. If the log of the operator names config/berg/warm, apply it.")
	}
	return result(check, console.OK, fmt.Sprintf("ready for all %d Challenges that ask for them", asking), "")
}
