package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/overview"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// New takes from a survey the parts that a report may contain.
func New(s doctor.Survey, sum overview.Overview, events []corev1.Event) Bundle {
	b := Bundle{
		At: s.Now.UTC(), Plugin: s.Plugin, Server: s.Server, Checks: doctor.Check(s), Overview: shortened(sum),
		Operator: showOperator(s), Settings: convertSettings(s), Missing: slices.Clone(sum.Unreadable),
	}
	for i := range s.Nodes {
		b.Nodes = append(b.Nodes, showNode(&s.Nodes[i], s))
	}
	for i := range s.Challenges {
		b.Challenges = append(b.Challenges, showChallenge(&s.Challenges[i]))
	}
	for i := range s.Checks {
		b.Solvers = append(b.Solvers, solverFields.show(&s.Checks[i]))
	}
	broken := b.addInstances(s)
	b.addPods(s, broken)
	b.addEvents(s, events)
	return b
}

// maxNames is the number of names of instances and Challenges in each list of an overview.
const maxNames = 100

// shortened copies the lists that it cuts, because the overview is the caller's.
func shortened(sum overview.Overview) overview.Overview {
	sum.Problems = slices.Clone(sum.Problems[:min(len(sum.Problems), maxNames)])
	for i := range sum.Problems {
		p := &sum.Problems[i]
		p.Instances = p.Instances[:min(len(p.Instances), maxNames)]
	}
	sum.Queue.Limits = sum.Queue.Limits[:min(len(sum.Queue.Limits), maxNames)]
	if c := sum.Capacity; c != nil {
		short := *c
		short.Headroom = c.Headroom[:min(len(c.Headroom), maxNames)]
		sum.Capacity = &short
	}
	return sum
}

// left says how many of a kind are left out.
func (b *Bundle) left(noun string, n, limit int) {
	if n > limit {
		b.Missing = append(b.Missing, fmt.Sprintf("%d of %d %s are left out", n-limit, n, noun))
	}
}

// addInstances adds the instances, unhealthy ones first, and returns the namespaces of the unhealthy ones.
func (b *Bundle) addInstances(s doctor.Survey) map[string]bool {
	all := make([]*bergv1.ChallengeInstance, 0, len(s.Instances))
	broken := map[string]bool{}
	for i := range s.Instances {
		all = append(all, &s.Instances[i])
		if !view.IsHealthy(&s.Instances[i]) {
			broken[why.InstanceNamespace(&s.Instances[i])] = true
		}
	}
	slices.SortStableFunc(all, func(a, b *bergv1.ChallengeInstance) int {
		return cmp.Or(boolOrder(view.IsHealthy(a))-boolOrder(view.IsHealthy(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	})
	b.left("instances", len(all), MaxInstances)
	for _, i := range all[:min(len(all), MaxInstances)] {
		b.Instances = append(b.Instances, showInstance(i))
	}
	return broken
}

// boolOrder sorts false before true.
func boolOrder(later bool) int {
	if later {
		return 1
	}
	return 0
}

// addPods adds the pods of the operator, and the pods of unhealthy instances.
func (b *Bundle) addPods(s doctor.Survey, broken map[string]bool) {
	for i := range s.Pods {
		b.Pods = append(b.Pods, podFields.show(&s.Pods[i]))
	}
	var pods []*corev1.Pod
	for i := range s.InstancePods {
		if broken[s.InstancePods[i].Namespace] {
			pods = append(pods, &s.InstancePods[i])
		}
	}
	b.left("pods of instances with a problem", len(pods), MaxPods)
	for _, p := range pods[:min(len(pods), MaxPods)] {
		b.Pods = append(b.Pods, podFields.show(p))
	}
}

// addEvents adds the latest events about the operator, the objects of the event, and the nodes.
func (b *Bundle) addEvents(s doctor.Survey, events []corev1.Event) {
	wanted := map[string]bool{}
	if s.Deployment != nil {
		wanted[s.Deployment.Namespace] = true
	}
	for i := range s.Instances {
		wanted[s.Instances[i].Namespace], wanted[why.InstanceNamespace(&s.Instances[i])] = true, true
	}
	for i := range s.Challenges {
		wanted[s.Challenges[i].Namespace] = true
	}
	var all []*corev1.Event
	for i := range events {
		e := &events[i]
		about := e.InvolvedObject
		if !wanted[e.Namespace] && !wanted[about.Namespace] && about.Kind != "Node" && !strings.HasSuffix(strings.SplitN(about.APIVersion, "/", 2)[0], "berg.norelect.ch") {
			continue
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b *corev1.Event) int { return lastSeen(b).Compare(lastSeen(a)) })
	b.left("events", len(all), MaxEvents)
	for _, e := range all[:min(len(all), MaxEvents)] {
		b.Events = append(b.Events, eventFields.show(e))
	}
}

// showOperator adds the leader, which the Deployment does not have.
func showOperator(s doctor.Survey) Object {
	if s.Deployment == nil {
		return nil
	}
	shown := operatorFields.show(s.Deployment)
	shown["leader"] = s.Leader
	if !s.Renewed.IsZero() {
		shown["renewedAt"] = s.Renewed.UTC()
	}
	return shown
}

// secretNames are in the names of settings whose values are not shown.
var secretNames = regexp.MustCompile(`PASSWORD|TOKEN|USERNAME|CREDENTIAL|ARGS|PRIVATE`)

// convertSettings lists the variables of the operator's container. Values are shown only of its own settings, because a variable such
// as HTTP_PROXY may hold a password.
func convertSettings(s doctor.Survey) []Setting {
	if s.Deployment == nil || len(s.Deployment.Spec.Template.Spec.Containers) == 0 {
		return nil
	}
	byName := map[string]Setting{}
	show := func(name, value string) {
		setting := Setting{Name: name}
		switch _, own := doctor.Defaults[name]; {
		case !own:
			setting.Hidden = "not a setting of the operator"
		case secretNames.MatchString(name) && !strings.HasSuffix(name, "_FILE") && value != "":
			setting.Hidden = "may be a secret"
		case Secrets(value) != value:
			setting.Hidden = "looks like a secret"
		default:
			setting.Value = value
		}
		byName[name] = setting
	}
	for name, value := range s.Sources {
		show(name, value)
	}
	for _, e := range s.Deployment.Spec.Template.Spec.Containers[0].Env {
		if e.ValueFrom != nil {
			byName[e.Name] = Setting{Name: e.Name, Hidden: "comes from another object"}
			continue
		}
		show(e.Name, e.Value)
	}
	for name := range s.Shared { // as far as no variable replaces it
		if value, known := s.Setting(name); known {
			show(name, value)
		}
	}
	var all []Setting
	for _, setting := range byName {
		all = append(all, setting)
	}
	slices.SortFunc(all, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// showNode adds what pods have reserved on a node.
func showNode(n *corev1.Node, s doctor.Survey) Object {
	shown, taken := nodeFields.show(n), s.Reserved[n.Name]
	shown["reserved"] = map[string]any{"pods": s.PodsOnNodes[n.Name], "cpu": taken.Cpu(), "memory": taken.Memory()}
	return shown
}

// showChallenge adds whether it is frozen, which an annotation says that is not shown.
func showChallenge(c *bergv1.Challenge) Object {
	shown := challengeFields.show(c)
	shown["frozen"] = view.IsFrozen(c)
	return shown
}

// showInstance adds the stages of the start that are over, in one line.
func showInstance(i *bergv1.ChallengeInstance) Object {
	shown := instanceFields.show(i)
	shown["frozen"], shown["start"] = view.IsFrozen(i), view.FormatStages(view.Stages(i))
	return shown
}

// lastSeen returns when an event happened last. Which of its times are set depends on the program that wrote it.
func lastSeen(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	for _, moment := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
		if !moment.IsZero() {
			return moment
		}
	}
	return e.CreationTimestamp.Time
}
