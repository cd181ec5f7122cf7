package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// sandboxes checks what Challenges with sandbox: nested need. Without one, and without the setting, there is nothing to say.
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
		return result(check, Problem, strings.Join(nested, ", ")+": sandbox: nested needs CHALLENGE_NESTED_SECCOMP_PROFILE, which is empty",
			"Prepare the nodes, then set it: docs/operations.md, Challenges that are jails.")
	}
	if hiddenLines, hidden := s.hidden(check, "nodes"); hidden {
		return hiddenLines
	}
	var without []string
	for _, n := range s.Nodes {
		if !hasUserNamespaces(n) {
			without = append(without, n.Name)
		}
	}
	switch {
	case len(without) == len(s.Nodes):
		return result(check, Problem, "no node supports user namespaces: pods with sandbox: nested do not start", "Update the container runtime: docs/operations.md, Prepare the nodes.")
	case len(without) > 0:
		return result(check, Warning, fmt.Sprintf("%d of %d nodes do not support user namespaces, such as %s: pods with sandbox: nested do not start there", len(without), len(s.Nodes), without[0]),
			"Update the container runtime: docs/operations.md, Prepare the nodes.")
	case !known:
		return result(check, OK, fmt.Sprintf("%d nodes support user namespaces; CHALLENGE_NESTED_SECCOMP_PROFILE is not known", len(s.Nodes)), "")
	default:
		return result(check, OK, fmt.Sprintf("%d nodes support user namespaces; profile %s", len(s.Nodes), profile), "")
	}
}

// hasUserNamespaces reports whether a container runtime of a node supports user namespaces, as its kubelet says.
func hasUserNamespaces(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool {
		return h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces
	})
}
