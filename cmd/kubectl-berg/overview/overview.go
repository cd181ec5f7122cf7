// Package overview sums up an event: what runs, what is wrong, what waits, and what the cluster has left. It is pure.
package overview

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
	"github.com/bergctf/berg-operator/internal/berg/plan"
)

// endsSoon is the time within which an instance ends soon.
const endsSoon = 15 * time.Minute

// maxHeadroom is the number of further instances up to which headroom is counted.
const maxHeadroom = 1000

// Overview is an event at one moment. Fields that are nil could not be read, or do not exist.
type Overview struct {
	At metav1.Time `json:"at"`
	// Operator are the checks of the operator.
	Operator   []doctor.Result `json:"operator"`
	Instances  Instances       `json:"instances"`
	Problems   []Problem       `json:"problems"`
	Queue      Queue           `json:"queue"`
	Capacity   *Capacity       `json:"capacity,omitempty"`
	NodePorts  *NodePorts      `json:"nodePorts,omitempty"`
	Challenges *Challenges     `json:"challenges,omitempty"`
	Checks     *Checks         `json:"checks,omitempty"`
	Prepull    *Prepull        `json:"prepull,omitempty"`
	Records    *Records        `json:"records,omitempty"`
	// Unreadable says what could not be read.
	Unreadable []string `json:"unreadable,omitempty"`
}

// Instances counts the instances.
type Instances struct {
	Total      int                  `json:"total"`
	Namespaces int                  `json:"namespaces"`
	ByPhase    map[bergv1.Phase]int `json:"byPhase"`
	// EndSoon expire within 15 minutes, Frozen do not expire.
	EndSoon int `json:"endSoon"`
	Frozen  int `json:"frozen"`
	// Outdated run an earlier version of their Challenge or of the operator's settings.
	Outdated int `json:"outdated"`
}

// Problem is a problem that one or more instances have.
type Problem struct {
	// Cause is what players are shown, Reason that of the condition.
	Cause    bergv1.Cause `json:"cause,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Sentence string       `json:"sentence"`
	Do       string       `json:"do,omitempty"`
	// Instances are their names, with the namespaces.
	Instances []string `json:"instances"`
}

// Queue is what waits for other instances.
type Queue struct {
	// Queued wait for a limit, OwnerBusy for an earlier instance of their owner, Frozen for the end of a freeze.
	Queued    int `json:"queued"`
	OwnerBusy int `json:"ownerBusy"`
	Frozen    int `json:"frozen"`
	// FirstSeconds is how long the first one is queued.
	FirstSeconds *int64 `json:"firstSeconds,omitempty"`
	// Limits are those that they wait for, most of them first.
	Limits []Limit `json:"limits,omitempty"`
}

// Limit is a limit that is reached.
type Limit struct {
	Message   string `json:"message"`
	Instances int    `json:"instances"`
}

// Amount is a resource of all nodes on which instances can run.
type Amount struct {
	Used  float64 `json:"used"`
	Total float64 `json:"total"`
}

// Capacity is what nodes have for pods. CPU is in cores, Memory in bytes; what pods request is used.
type Capacity struct {
	Nodes  int    `json:"nodes"`
	Ready  int    `json:"readyNodes"`
	Pods   Amount `json:"pods"`
	CPU    Amount `json:"cpu"`
	Memory Amount `json:"memory"`
	// Headroom is how many more instances of each Challenge can start, the fewest first.
	Headroom []Headroom `json:"headroom,omitempty"`
}

// Headroom is how many more instances of a Challenge can start.
type Headroom struct {
	Namespace string `json:"namespace"`
	Challenge string `json:"challenge"`
	// Instances is at most 1000. By is the limit that is reached then, "" if none is below that.
	Instances int    `json:"instances"`
	By        string `json:"by,omitempty"`
}

// NodePorts counts the node ports of the cluster.
type NodePorts struct {
	Used  int `json:"used"`
	Range int `json:"range"`
}

// Named is an object with what is wrong with it.
type Named struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Message   string `json:"message"`
}

// Challenges counts the Challenges.
type Challenges struct {
	Total int `json:"total"`
	// Frozen start no instance, NotAccepted cannot.
	Frozen      int     `json:"frozen"`
	NotAccepted []Named `json:"notAccepted,omitempty"`
}

// Checks counts the ChallengeChecks.
type Checks struct {
	Enabled  bool `json:"enabled"`
	Total    int  `json:"total"`
	Solvable int  `json:"solvable"`
	// Unknown were not checked yet, or their check was broken off. Running are being checked.
	Unknown int     `json:"unknown"`
	Running int     `json:"running"`
	Failed  []Named `json:"failed,omitempty"`
}

// Prepull counts the Challenges whose images are pulled in advance.
type Prepull struct {
	Enabled   bool    `json:"enabled"`
	Pulled    int     `json:"pulled"`
	Pulling   int     `json:"pulling"`
	Scheduled int     `json:"scheduled"`
	Failed    []Named `json:"failed,omitempty"`
}

// Records counts the records of ended instances.
type Records struct {
	Enabled   bool         `json:"enabled"`
	Namespace string       `json:"namespace"`
	Total     int          `json:"total"`
	Latest    *metav1.Time `json:"latest,omitempty"`
}

// New sums up a survey of doctor.Event. records is the namespace of the records; settings are the operator's, nil if they
// are not valid.
func New(s doctor.Survey, settings *plan.Settings, records string) Overview {
	o := Overview{At: metav1.NewTime(s.Now), Operator: doctor.Operator(s), Problems: []Problem{}}
	o.countInstances(s)
	if s.Unreadable["nodes"] == "" && s.Unreadable["pods"] == "" {
		o.Capacity = capacity(s)
	}
	if s.Unreadable["services"] == "" {
		o.NodePorts = &NodePorts{s.NodePorts, doctor.NodePortRange}
	}
	if s.Unreadable["challenges"] == "" {
		o.Challenges, o.Prepull = challenges(s)
	}
	if o.Capacity != nil && o.Challenges != nil && settings != nil {
		o.Capacity.Headroom = headroom(s, *settings, o)
	}
	if s.Checks != nil {
		o.Checks = checks(s)
	}
	if s.Records != nil {
		o.Records = countRecords(s, records)
	}
	for _, kind := range []string{"instances", "nodes", "pods", "services", "challenges", "checks", "records"} {
		if message := s.Unreadable[kind]; message != "" {
			o.Unreadable = append(o.Unreadable, message)
		}
	}
	return o
}

func (o *Overview) countInstances(s doctor.Survey) {
	o.Instances = Instances{Total: len(s.Instances), ByPhase: map[bergv1.Phase]int{}}
	pods := map[string][]corev1.Pod{}
	for _, p := range s.InstancePods {
		pods[p.Namespace] = append(pods[p.Namespace], p)
	}
	namespaces := map[string]bool{}
	var findings []why.Finding
	limits := map[string]int{}
	for n := range s.Instances {
		i := &s.Instances[n]
		namespaces[i.Namespace] = true
		o.Instances.ByPhase[cmp.Or(i.Status.Phase, bergv1.PhasePending)]++
		switch {
		case i.Annotations[bergv1.AnnotationFrozen] != "":
			o.Instances.Frozen++
		case i.Status.ExpiresAt != nil && i.DeletionTimestamp == nil && i.Status.ExpiresAt.Sub(s.Now) < endsSoon:
			o.Instances.EndSoon++
		}
		if c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionUpToDate); c != nil && c.Status == metav1.ConditionFalse {
			o.Instances.Outdated++
		}
		if queued := o.Queue.count(i, s.Now, limits); queued || why.Healthy(i) {
			continue
		}
		findings = append(findings, why.Explain(why.View{Instance: i, Now: s.Now, Pods: pods[why.InstanceNamespace(i)]}))
	}
	o.Instances.Namespaces = len(namespaces)
	for message, count := range limits {
		o.Queue.Limits = append(o.Queue.Limits, Limit{message, count})
	}
	slices.SortFunc(o.Queue.Limits, func(a, b Limit) int {
		return cmp.Or(b.Instances-a.Instances, strings.Compare(a.Message, b.Message))
	})
	for _, g := range why.Groups(findings) {
		if g.First.Level == why.Problem {
			slices.Sort(g.Names)
			o.Problems = append(o.Problems, Problem{g.First.Cause, g.First.Reason, g.First.Sentence, g.First.Do, g.Names})
		}
	}
	slices.SortStableFunc(o.Problems, func(a, b Problem) int { return len(b.Instances) - len(a.Instances) })
}

// count counts an instance that waits for others, and reports whether it does.
func (q *Queue) count(i *bergv1.ChallengeInstance, now time.Time, limits map[string]int) bool {
	if i.DeletionTimestamp != nil || i.Status.InstanceID != "" {
		return false
	}
	switch i.Status.Cause {
	case bergv1.CauseQueued:
		q.Queued++
		if waited := int64(now.Sub(i.CreationTimestamp.Time) / time.Second); q.FirstSeconds == nil || *q.FirstSeconds < waited {
			q.FirstSeconds = &waited
		}
		if c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionAdmitted); c != nil {
			text, _, _ := strings.Cut(c.Message, ". ") // what follows says that it starts automatically
			limits[strings.TrimPrefix(text, "Queued: ")]++
		}
	case bergv1.CauseOwnerBusy:
		q.OwnerBusy++
	case bergv1.CauseFrozen:
		q.Frozen++
	case bergv1.CauseNotReadyYet, bergv1.CauseNoCapacity, bergv1.CauseImageUnavailable, bergv1.CauseCrashing, bergv1.CauseRefused, bergv1.CauseAddressPending, bergv1.CauseInvalid:
		return false
	default:
		return false
	}
	return true
}

// usable reports whether the scheduler places pods of instances on a node. They tolerate no taint.
func usable(n corev1.Node) bool {
	return doctor.NodeReady(n) && !n.Spec.Unschedulable && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	})
}

func capacity(s doctor.Survey) *Capacity {
	c := &Capacity{Nodes: len(s.Nodes)}
	for _, n := range s.Nodes {
		if !usable(n) {
			continue
		}
		c.Ready++
		allocatable, taken := n.Status.Allocatable, s.Reserved[n.Name]
		c.Pods.add(float64(s.PodsOnNodes[n.Name]), float64(allocatable.Pods().Value()))
		c.CPU.add(taken.Cpu().AsApproximateFloat64(), allocatable.Cpu().AsApproximateFloat64())
		c.Memory.add(taken.Memory().AsApproximateFloat64(), allocatable.Memory().AsApproximateFloat64())
	}
	return c
}

func (a *Amount) add(used, total float64) {
	a.Used += used
	a.Total += total
}

// headroom returns how many more instances of each Challenge can start, the fewest first.
func headroom(s doctor.Survey, settings plan.Settings, o Overview) []Headroom {
	var nodes []plan.Free
	for _, n := range s.Nodes {
		if usable(n) {
			nodes = append(nodes, plan.NewFree(n.Status.Allocatable, s.Reserved[n.Name], s.PodsOnNodes[n.Name]))
		}
	}
	started, ofChallenge := 0, map[string]int{}
	home, _ := s.Setting("CHALLENGE_NAMESPACE")
	for n := range s.Instances {
		if i := &s.Instances[n]; i.Status.InstanceID != "" {
			started++
			ofChallenge[cmp.Or(i.Spec.ChallengeRef.Namespace, home)+"/"+i.Spec.ChallengeRef.Name]++
		}
	}
	var all []Headroom
	for n := range s.Challenges {
		c := &s.Challenges[n]
		shape, err := plan.NewShape(c, settings, 1)
		if err != nil || len(c.Spec.Containers) == 0 || c.Annotations[bergv1.AnnotationFrozen] != "" {
			continue // no instance of it can start
		}
		result := Headroom{Namespace: c.Namespace, Challenge: c.Name}
		result.Instances, result.By = plan.Headroom(shape, nodes, maxHeadroom)
		limit := func(constraint string, left int) {
			if left < result.Instances {
				result.Instances, result.By = max(0, left), constraint
			}
		}
		if shape.NodePorts > 0 && o.NodePorts != nil {
			limit("node ports", (o.NodePorts.Range-o.NodePorts.Used)/shape.NodePorts)
		}
		if shape.MaxInstances > 0 {
			limit("spec.maxInstances", shape.MaxInstances-ofChallenge[c.Namespace+"/"+c.Name])
		}
		if settings.MaxInstances > 0 {
			limit("CHALLENGE_MAX_INSTANCES", settings.MaxInstances-started)
		}
		all = append(all, result)
	}
	slices.SortStableFunc(all, func(a, b Headroom) int {
		return cmp.Or(a.Instances-b.Instances, strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Challenge, b.Challenge))
	})
	return all
}

func challenges(s doctor.Survey) (*Challenges, *Prepull) {
	all, pull := &Challenges{Total: len(s.Challenges)}, &Prepull{Enabled: set(s, "IMAGE_PREPULL_LEAD")}
	for n := range s.Challenges {
		c := &s.Challenges[n]
		named := func(message string) Named { return Named{c.Namespace, c.Name, message} }
		if c.Annotations[bergv1.AnnotationFrozen] != "" {
			all.Frozen++
		}
		if a := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionAccepted); a != nil && a.Status == metav1.ConditionFalse {
			all.NotAccepted = append(all.NotAccepted, named(a.Message))
		}
		images := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady)
		switch {
		case images == nil, images.Reason == bergv1.ReasonNothingToRun:
		case images.Status == metav1.ConditionTrue:
			pull.Pulled++
		case images.Reason == bergv1.ImagesPulling:
			pull.Pulling++
		case images.Reason == bergv1.ImagesScheduled:
			pull.Scheduled++
		default:
			pull.Failed = append(pull.Failed, named(images.Message))
		}
	}
	return all, pull
}

// set reports whether a setting has a value other than none.
func set(s doctor.Survey, name string) bool {
	value, _ := s.Setting(name)
	return value != "" && value != "0"
}

func checks(s doctor.Survey) *Checks {
	all := &Checks{Enabled: set(s, "CHECK_CONCURRENCY"), Total: len(s.Checks)}
	for n := range s.Checks {
		c := &s.Checks[n]
		solvable := meta.FindStatusCondition(c.Status.Conditions, bergv1.CheckConditionSolvable)
		switch {
		case solvable == nil || solvable.Status == metav1.ConditionUnknown:
			all.Unknown++
		case solvable.Status == metav1.ConditionTrue:
			all.Solvable++
		default:
			all.Failed = append(all.Failed, Named{c.Namespace, c.Name, solvable.Reason + ": " + solvable.Message})
		}
		if meta.IsStatusConditionTrue(c.Status.Conditions, bergv1.CheckConditionRunning) {
			all.Running++
		}
	}
	return all
}

func countRecords(s doctor.Survey, namespace string) *Records {
	all := &Records{Enabled: set(s, "RECORD_RETENTION"), Namespace: namespace, Total: len(s.Records)}
	for n := range s.Records {
		if created := &s.Records[n].CreationTimestamp; all.Latest == nil || all.Latest.Before(created) {
			all.Latest = created
		}
	}
	return all
}
