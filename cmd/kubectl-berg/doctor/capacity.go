package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
)

const (
	// NodePortRange is the default number of node ports of a cluster.
	NodePortRange = 2768
	// warnShare is the share of a limit from which there is a warning.
	warnShare = 0.9
)

func capacity(s Survey) []Result {
	var results []Result
	if hiddenLines, hidden := s.hidden("nodes", "nodes"); hidden {
		results = append(results, hiddenLines...)
	} else if len(s.Nodes) == 0 {
		results = append(results, result("nodes", Problem, "the cluster has no node", "Add a node.")...)
	} else {
		ready, pods, used := 0, int64(0), 0
		for _, n := range s.Nodes {
			if !NodeReady(n) || n.Spec.Unschedulable {
				continue
			}
			ready++
			pods += n.Status.Allocatable.Pods().Value()
			used += s.PodsOnNodes[n.Name]
		}
		text := fmt.Sprintf("%d of %d ready", ready, len(s.Nodes))
		if s.PodsOnNodes != nil {
			text += fmt.Sprintf(", %d of %d pods", used, pods)
		}
		switch {
		case ready == 0:
			results = append(results, result("nodes", Problem, text, "For the reason: kubectl describe nodes")...)
		case s.PodsOnNodes != nil && float64(used) > warnShare*float64(pods):
			results = append(results, result("nodes", Warning, text, "Add nodes. kubectl berg plan calculates how many an event needs.")...)
		case ready < len(s.Nodes):
			results = append(results, result("nodes", Warning, text, "List the nodes: kubectl get nodes")...)
		default:
			results = append(results, result("nodes", OK, text, "")...)
		}
	}
	if message := s.Unreadable["services"]; message != "" {
		return append(results, result("node ports", Unknown, message, "")...)
	}
	text := fmt.Sprintf("%d of %d in use, if the range is the default", s.NodePorts, NodePortRange)
	if float64(s.NodePorts) > warnShare*NodePortRange {
		return append(results, result("node ports", Warning, text, "Use routes, or extend --service-node-port-range of the API server.")...)
	}
	return append(results, result("node ports", OK, text, "")...)
}

// NodeReady reports whether a node is ready to run pods.
func NodeReady(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func quotas(s Survey) []Result {
	if results, hidden := s.hidden("quotas", "quotas"); hidden {
		return results
	}
	var full []string
	for _, q := range s.Quotas {
		for name, hard := range q.Status.Hard {
			used := q.Status.Used[name]
			if hard.IsZero() || used.AsApproximateFloat64() >= warnShare*hard.AsApproximateFloat64() {
				full = append(full, fmt.Sprintf("%s/%s: %s of %s %s", q.Namespace, q.Name, used.String(), hard.String(), name))
			}
		}
	}
	slices.Sort(full)
	if len(full) > 0 {
		return result("quotas", Warning, strings.Join(full, "; "), "Raise the quotas. The operator retries what they refused.")
	}
	return result("quotas", OK, fmt.Sprintf("none of the %d quotas for instances is nearly exhausted", len(s.Quotas)), "")
}

func instances(s Survey) []Result {
	if results, hidden := s.hidden("instances", "instances"); hidden {
		return results
	}
	bad, running := 0, 0
	for i := range s.Instances {
		switch instance := &s.Instances[i]; {
		case instance.DeletionTimestamp != nil: // it ends
		case why.Broken(instance):
			bad++
		case instance.Status.Phase == bergv1.PhaseRunning:
			running++
		}
	}
	text := fmt.Sprintf("%d, %d of them running without a problem", len(s.Instances), running)
	if bad > 0 {
		return result("instances", Warning, fmt.Sprintf("%s, %d with a problem", text, bad), "For the reasons: kubectl berg why --all -A")
	}
	return result("instances", OK, text, "")
}
