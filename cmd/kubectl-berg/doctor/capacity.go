package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/plan"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

const (
	// NodePortRange is the default number of node ports of a cluster.
	NodePortRange = 2768
	// warnShare is the share of a limit from which there is a warning.
	warnShare = 0.9
)

// capacity shows nodes and node ports. Other Services have node ports, too, so the sum is of all Services. The range of the
// cluster cannot be read.
func capacity(s Survey) []Result {
	var results []Result
	if hiddenLines, hidden := s.hidden("nodes", "nodes"); hidden {
		results = append(results, hiddenLines...)
	} else if len(s.Nodes) == 0 {
		results = append(results, result("nodes", console.Problem, "the cluster has no node", "Add a node.")...)
	} else {
		c := view.NewCapacity(s.Cluster(nil), nil, nil)
		text := fmt.Sprintf("%d of %d take instances", c.Ready, c.Nodes)
		if s.PodsOnNodes != nil {
			text += fmt.Sprintf(", %.0f of %.0f pods", c.Pods.Used, c.Pods.Total)
		}
		switch {
		case c.Ready == 0:
			results = append(results, result("nodes", console.Problem, text, "For the reason: kubectl describe nodes")...)
		case s.PodsOnNodes != nil && c.Pods.Used > warnShare*c.Pods.Total:
			results = append(results, result("nodes", console.Warning, text, "Add nodes. kubectl berg plan calculates how many an event needs.")...)
		case slices.ContainsFunc(s.Nodes, func(n corev1.Node) bool { return !view.IsReady(&n) || n.Spec.Unschedulable }):
			results = append(results, result("nodes", console.Warning, text, "List the nodes: kubectl get nodes")...)
		default:
			results = append(results, result("nodes", console.OK, text, "")...)
		}
	}
	if message := s.Unreadable["services"]; message != "" {
		return append(results, result("node ports", console.Unknown, message, "")...)
	}
	text := fmt.Sprintf("%d of %d in use, if the range is the default", s.NodePorts, NodePortRange)
	if float64(s.NodePorts) > warnShare*NodePortRange {
		return append(results, result("node ports", console.Warning, text, "Use routes, or extend --service-node-port-range of the API server.")...)
	}
	return append(results, result("node ports", console.OK, text, "")...)
}

// Cluster returns the part of the survey that capacity is calculated from. known are the operator's settings, nil if
// they are not valid.
func (s Survey) Cluster(known *plan.Settings) view.Cluster {
	c := view.Cluster{
		Nodes: s.Nodes, Reserved: s.Reserved, Pods: s.PodsOnNodes, NodePorts: NodePortRange, UsedNodePorts: &s.NodePorts,
		Home: s.setting("CHALLENGE_NAMESPACE"),
	}
	if known != nil {
		c.MaxInstances = known.MaxInstances
	}
	if s.Unreadable["services"] != "" {
		c.NodePorts = 0
	}
	return c
}

// quotas checks the quotas in the namespaces of instances and in the user's. A limit of 0 counts as exhausted.
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
		return result("quotas", console.Warning, strings.Join(full, "; "), "Raise the quotas. The operator retries what they refused.")
	}
	return result("quotas", console.OK, fmt.Sprintf("none of the %d quotas for instances is nearly exhausted", len(s.Quotas)), "")
}

// instances counts prepared instances alone: no player has one.
func instances(s Survey) []Result {
	if results, hidden := s.hidden("instances", "instances"); hidden {
		return results
	}
	bad, running, prepared := 0, 0, 0
	for i := range s.Instances {
		row := view.NewRow(&s.Instances[i])
		if row.Prepared {
			prepared++
		}
		switch {
		case row.NeedsPerson:
			bad++
		case row.State == view.Running && !row.Prepared:
			running++
		}
	}
	text := fmt.Sprintf("%d, %d of them running without a problem", len(s.Instances)-prepared, running)
	if prepared > 0 {
		text += fmt.Sprintf(", and %d prepared without a player", prepared)
	}
	if bad > 0 {
		return result("instances", console.Warning, fmt.Sprintf("%s, %d with a problem", text, bad), "For the reasons: kubectl berg why --all -A")
	}
	return result("instances", console.OK, text, "")
}
