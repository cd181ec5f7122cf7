package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		Operator: convertOperator(s), Settings: convertSettings(s), Missing: slices.Clone(sum.Unreadable),
	}
	for i := range s.Nodes {
		b.Nodes = append(b.Nodes, convertNode(&s.Nodes[i], s))
	}
	for i := range s.Challenges {
		b.Challenges = append(b.Challenges, convertChallenge(&s.Challenges[i]))
	}
	for i := range s.Checks {
		b.Solvers = append(b.Solvers, convertSolver(&s.Checks[i]))
	}
	broken := b.addInstances(s)
	b.addPods(s, broken)
	b.addEvents(s, events)
	return b
}

// maxNames is the number of names of instances and Challenges in each list of an overview.
const maxNames = 100

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
		b.Instances = append(b.Instances, convertInstance(i))
	}
	return broken
}

func boolOrder(later bool) int {
	if later {
		return 1
	}
	return 0
}

// addPods adds the pods of the operator, and the pods of unhealthy instances.
func (b *Bundle) addPods(s doctor.Survey, broken map[string]bool) {
	for i := range s.Pods {
		b.Pods = append(b.Pods, convertPod(&s.Pods[i]))
	}
	var pods []*corev1.Pod
	for i := range s.InstancePods {
		if broken[s.InstancePods[i].Namespace] {
			pods = append(pods, &s.InstancePods[i])
		}
	}
	b.left("pods of instances with a problem", len(pods), MaxPods)
	for _, p := range pods[:min(len(pods), MaxPods)] {
		b.Pods = append(b.Pods, convertPod(p))
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
	var all []Event
	for i := range events {
		e := &events[i]
		about := e.InvolvedObject
		if !wanted[e.Namespace] && !wanted[about.Namespace] && about.Kind != "Node" && !strings.HasSuffix(strings.SplitN(about.APIVersion, "/", 2)[0], "berg.norelect.ch") {
			continue
		}
		all = append(all, convertEvent(e))
	}
	slices.SortStableFunc(all, func(a, b Event) int { return b.Last.Compare(a.Last.Time) })
	b.left("events", len(all), MaxEvents)
	b.Events = all[:min(len(all), MaxEvents)]
}

func convertOperator(s doctor.Survey) *Operator {
	d := s.Deployment
	if d == nil {
		return nil
	}
	o := &Operator{
		Namespace: d.Namespace, Name: d.Name, Generation: d.Generation, Observed: d.Status.ObservedGeneration, Replicas: d.Status.Replicas,
		Updated: d.Status.UpdatedReplicas, Ready: d.Status.ReadyReplicas, Leader: s.Leader, Conditions: deploymentConditions(d),
	}
	if len(d.Spec.Template.Spec.Containers) > 0 {
		o.Image = d.Spec.Template.Spec.Containers[0].Image
	}
	if !s.Renewed.IsZero() {
		renewed := s.Renewed.UTC()
		o.Renewed = &renewed
	}
	return o
}

func deploymentConditions(d *appsv1.Deployment) (all []Condition) {
	for _, c := range d.Status.Conditions {
		all = append(all, Condition{string(c.Type), string(c.Status), c.Reason, c.Message, since(c.LastTransitionTime)})
	}
	return all
}

func since(moment metav1.Time) *metav1.Time {
	if moment.IsZero() {
		return nil
	}
	return &moment
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

func convertNode(n *corev1.Node, s doctor.Survey) Node {
	allocatable, taken, info := n.Status.Allocatable, s.Reserved[n.Name], n.Status.NodeInfo
	out := Node{
		Name: n.Name, Kubelet: info.KubeletVersion, Runtime: info.ContainerRuntimeVersion, OS: info.OSImage, Arch: info.Architecture, Cordoned: n.Spec.Unschedulable,
		CPU: allocatable.Cpu().String(), Memory: allocatable.Memory().String(), Pods: allocatable.Pods().String(),
		PodsInUse: s.PodsOnNodes[n.Name], CPUInUse: taken.Cpu().String(), MemInUse: taken.Memory().String(),
	}
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, t.Key+":"+string(t.Effect))
	}
	for _, c := range n.Status.Conditions {
		out.Conditions = append(out.Conditions, Condition{string(c.Type), string(c.Status), c.Reason, c.Message, since(c.LastTransitionTime)})
	}
	return out
}

func convertPod(p *corev1.Pod) Pod {
	out := Pod{
		Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Phase: string(p.Status.Phase), Reason: p.Status.Reason, Message: p.Status.Message,
		Created: p.CreationTimestamp, Deleted: p.DeletionTimestamp != nil,
	}
	for _, c := range p.Status.Conditions {
		out.Conditions = append(out.Conditions, Condition{string(c.Type), string(c.Status), c.Reason, c.Message, since(c.LastTransitionTime)})
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		result := Container{Name: c.Name, Image: c.Image, ImageID: c.ImageID, Ready: c.Ready, Restarts: c.RestartCount, State: convertState(c.State)}
		if last := convertState(c.LastTerminationState); last.State != "" {
			result.Last = &last
		}
		out.Containers = append(out.Containers, result)
	}
	return out
}

func convertState(s corev1.ContainerState) State {
	switch {
	case s.Waiting != nil:
		return State{State: "Waiting", Reason: s.Waiting.Reason, Message: s.Waiting.Message}
	case s.Running != nil:
		return State{State: "Running", Started: since(s.Running.StartedAt)}
	case s.Terminated != nil: // without its message, which the container wrote and which may have a flag
		return State{State: "Terminated", Reason: s.Terminated.Reason, ExitCode: &s.Terminated.ExitCode, Started: since(s.Terminated.StartedAt), Finished: since(s.Terminated.FinishedAt)}
	default:
		return State{}
	}
}

func convertConditions(all []metav1.Condition) (out []Condition) {
	for _, c := range all {
		out = append(out, Condition{c.Type, string(c.Status), c.Reason, c.Message, since(c.LastTransitionTime)})
	}
	return out
}

func convertChallenge(c *bergv1.Challenge) Challenge {
	out := Challenge{
		Namespace: c.Namespace, Name: c.Name, Generation: c.Generation, Created: c.CreationTimestamp, Frozen: view.IsFrozen(c),
		MaxInstances: c.Spec.MaxInstances, Outbound: c.Spec.AllowOutboundTraffic, HideUntil: c.Spec.HideUntil, Prepull: c.Spec.Prepull,
		Conditions: convertConditions(c.Status.Conditions),
	}
	for _, declared := range c.Spec.Containers {
		container := ChallengeContainer{
			Hostname: declared.Hostname, Image: declared.Image, Probe: declared.ReadinessProbe != nil, Requests: formatResources(declared.ResourceRequests), Limits: formatResources(declared.ResourceLimits),
			Capabilities: declared.AdditionalCapabilities, Sandbox: string(declared.Sandbox), RuntimeClass: declared.RuntimeClassName,
		}
		for _, p := range declared.Ports {
			container.Ports = append(container.Ports, fmt.Sprintf("%s %d/%s %s", cmp.Or(p.Name, "-"), p.Port, cmp.Or(string(p.Protocol), "tcp"), cmp.Or(string(p.Type), "internalPort")))
		}
		if f := declared.DynamicFlag; f != nil {
			switch {
			case f.Env != nil:
				container.Flag = "env"
			case f.Content != nil:
				container.Flag = "content"
			case f.Executable != nil:
				container.Flag = "executable"
			}
		}
		out.Containers = append(out.Containers, container)
	}
	return out
}

func formatResources(r *bergv1.Resources) string {
	var parts []string
	if r != nil && r.CPU != nil {
		parts = append(parts, "cpu "+string(*r.CPU))
	}
	if r != nil && r.Memory != nil {
		parts = append(parts, "memory "+string(*r.Memory))
	}
	return strings.Join(parts, ", ")
}

func convertInstance(i *bergv1.ChallengeInstance) Instance {
	return Instance{
		Namespace: i.Namespace, Name: i.Name, UID: string(i.UID), Challenge: i.Spec.ChallengeRef.Name, Owner: i.Spec.OwnerID, Generation: i.Generation,
		Observed: i.Status.ObservedGeneration, Created: i.CreationTimestamp, Deleted: i.DeletionTimestamp, Finalizers: i.Finalizers, Timeout: i.Spec.Timeout,
		TerminationReason: string(i.Spec.TerminationReason), Phase: string(i.Status.Phase), Cause: string(i.Status.Cause), InNamespace: i.Status.Namespace,
		Started: i.Status.StartedAt, ReadyAt: i.Status.ReadyAt, Expires: i.Status.ExpiresAt, Addresses: len(i.Status.Services),
		Frozen: view.IsFrozen(i), Start: view.FormatStages(view.Stages(i)), Conditions: convertConditions(i.Status.Conditions),
	}
}

func convertSolver(c *bergv1.ChallengeCheck) Solver {
	out := Solver{
		Namespace: c.Namespace, Name: c.Name, Challenge: c.Spec.ChallengeRef.Name, Image: c.Spec.Solver.Image, Every: c.Spec.Schedule.Every,
		Suspended: c.Spec.Suspend, Next: c.Status.NextRunAt, Conditions: convertConditions(c.Status.Conditions),
	}
	for _, r := range c.Status.History {
		out.Results = append(out.Results, fmt.Sprintf("%s %s", r.StartedAt.UTC().Format(time.RFC3339), r.Result))
	}
	return out
}

func convertEvent(e *corev1.Event) Event {
	about := e.InvolvedObject
	out := Event{
		Last: e.LastTimestamp, Count: max(1, e.Count), Type: e.Type, Reason: e.Reason, Message: e.Message, From: cmp.Or(e.ReportingController, e.Source.Component),
		About: strings.TrimPrefix(about.Namespace+"/", "/") + about.Kind + "/" + about.Name,
	}
	if e.Series != nil {
		out.Count, out.Last = max(out.Count, e.Series.Count), metav1.NewTime(e.Series.LastObservedTime.Time)
	}
	for _, candidate := range []time.Time{e.EventTime.Time, e.CreationTimestamp.Time} {
		if out.Last.IsZero() {
			out.Last = metav1.NewTime(candidate)
		}
	}
	return out
}
