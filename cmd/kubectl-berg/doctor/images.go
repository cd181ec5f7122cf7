package doctor

import (
	"fmt"
	"slices"
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// images counts containers that cannot pull by their images, so that one wrong image is one entry.
func images(s Survey) []Result {
	if results, hidden := s.hidden("image pulls", "pods"); hidden {
		return results
	}
	failing := map[string]int{}
	message := map[string]string{}
	for _, p := range s.InstancePods {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := c.State.Waiting; w != nil && view.CannotPull(w.Reason) {
				failing[c.Image]++
				message[c.Image] = w.Message
			}
		}
	}
	var results []Result
	name := s.setting("PULL_SECRET_NAME")
	switch s.PullSecret {
	case Missing:
		results = result("pull secret", console.Problem, "PULL_SECRET_NAME="+name+", but this Secret does not exist in the operator's namespace", "Create it with the type kubernetes.io/dockerconfigjson.")
	case Present:
		results = result("pull secret", console.OK, name, "")
	case Hidden:
		results = result("pull secret", console.Unknown, "you may not check whether "+name+" exists", "")
	case NotChecked:
	}
	var shown []string
	for image, n := range failing {
		shown = append(shown, fmt.Sprintf("%s (%d pods: %s)", image, n, message[image]))
	}
	slices.Sort(shown)
	pulled, missing := prepulled(s.Challenges)
	switch {
	case len(shown) > 0:
		results = append(results, result("image pulls", console.Problem, strings.Join(shown, "; "), "For what to do about each: kubectl berg why --all")...)
	case len(s.InstancePods) > 0:
		results = append(results, result("image pulls", console.OK, fmt.Sprintf("none of %d pods fails to pull its image", len(s.InstancePods)), "")...)
	case len(missing) == 0 && pulled > 0 && pulled == len(s.Challenges):
		results = append(results, result("image pulls", console.OK, fmt.Sprintf("the images of all %d Challenges are on every node", pulled), "")...)
	case len(missing) == 0:
		results = append(results, result("image pulls", console.Unknown, "unknown: no instance has pods yet", "To pull the images of a Challenge: kubectl berg try CHALLENGE --once")...)
	}
	if len(missing) > 0 {
		results = append(results, result("images before the event", console.Problem, strings.Join(missing, "; "), "Push the image, or give the cluster access to it, as the message says: docs/berg/images.md.")...)
	}
	return results
}

// prepulled counts the Challenges whose images are on every node, and names those whose images could
// not be pulled. Challenges whose images are being pulled, or are not pulled in advance, are neither.
func prepulled(all []bergv1.Challenge) (pulled int, missing []string) {
	for n := range all {
		switch c := view.NewChallenge(&all[n], nil); c.Images {
		case bergv1.ImagesPulled:
			pulled++
		case bergv1.ImagesPullFailed, bergv1.ImagesNoNode:
			missing = append(missing, fmt.Sprintf("Challenge %s: %s", c.ID(), c.ImagesMessage))
		}
	}
	return pulled, missing
}
