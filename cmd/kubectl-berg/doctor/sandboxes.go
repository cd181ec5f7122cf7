package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// sandboxes checks the requirements of Challenges with sandbox: nested. It reports nothing without such a Challenge and
// without the setting.
func sandboxes(s Survey) []Result {
	const check = "sandboxes"
	var nested []string
	for _, c := range s.Challenges {
		if slices.ContainsFunc(c.Spec.Containers, func(c bergv1.Container) bool { return c.Sandbox == bergv1.SandboxNested }) {
			nested = append(nested, c.Name)
		}
	}
	profile, known := s.Setting("CHALLENGE_NESTED_SECCOMP_PROFILE")
	if len(nested) == 0 && profile == "" {
		return nil
	}
	if known && profile == "" {
		return result(check, console.Problem, strings.Join(nested, ", ")+": sandbox: nested needs CHALLENGE_NESTED_SECCOMP_PROFILE, which is empty",
			"Prepare the nodes, then set it: docs/operations.md, Challenges that are jails.")
	}
	if hiddenLines, hidden := s.hidden(check, "nodes"); hidden {
		return hiddenLines
	}
	nodes := slices.DeleteFunc(slices.Clone(s.Nodes), func(n corev1.Node) bool { return !view.IsForInstances(&n) })
	var without []string
	for _, n := range nodes {
		if !view.HasUserNamespaces(&n) {
			without = append(without, n.Name)
		}
	}
	switch {
	case len(without) == len(nodes):
		return result(check, console.Problem, "no node supports user namespaces: pods with sandbox: nested do not start", "Update the container runtime: docs/operations.md, Prepare the nodes.")
	case len(without) > 0:
		return result(check, console.Warning, fmt.Sprintf("%d of %d nodes do not support user namespaces, such as %s: pods with sandbox: nested do not start there", len(without), len(nodes), without[0]),
			"Update the container runtime: docs/operations.md, Prepare the nodes.")
	case !known:
		return result(check, console.OK, fmt.Sprintf("%d nodes support user namespaces; CHALLENGE_NESTED_SECCOMP_PROFILE is not known", len(nodes)), "")
	default:
		return result(check, console.OK, fmt.Sprintf("%d nodes support user namespaces; profile %s", len(nodes), profile), "")
	}
}
