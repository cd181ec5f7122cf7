// Package overview sums up an event: running instances, problems, the queue, and the free capacity of the cluster. It
// is pure.
package overview

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
	"github.com/bergctf/berg-operator/internal/berg/plan"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// Overview is an event at one moment. Fields that are nil could not be read, or do not exist.
type Overview struct {
	At metav1.Time `json:"at"`
	// Dangers are the checks of what endangers the event, the worst first.
	Dangers []doctor.Result `json:"dangers"`
	// Operator are the checks of the operator.
	Operator []doctor.Result `json:"operator"`
	view.Overview
	Problems   []ProblemGroup `json:"problems"`
	Capacity   *view.Capacity `json:"capacity,omitempty"`
	NodePorts  *view.Amount   `json:"nodePorts,omitempty"`
	Use        *Use           `json:"use,omitempty"`
	Challenges *Challenges    `json:"challenges,omitempty"`
	Checks     *Checks        `json:"checks,omitempty"`
	// Prepared is the check of the Challenges that ask for prepared instances; empty if none does.
	Prepared []doctor.Result `json:"prepared,omitempty"`
	Prepull  *Prepull        `json:"prepull,omitempty"`
	Records  *Records        `json:"records,omitempty"`
	// Unreadable names objects that could not be read.
	Unreadable []string `json:"unreadable,omitempty"`
}

// ProblemGroup is a problem that one or more instances have.
type ProblemGroup struct {
	// Cause is shown to players, Reason is the reason of the condition.
	Cause    bergv1.Cause `json:"cause,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Sentence string       `json:"sentence"`
	Do       string       `json:"do,omitempty"`
	// Instances are their names, with the namespaces.
	Instances []string `json:"instances"`
}

// Use counts the running instances that the gate serves.
type Use struct {
	// Active are in use, Idle were used earlier, or perhaps before the gate was started. NeverOpened were not.
	Active      int `json:"active"`
	Idle        int `json:"idle"`
	NeverOpened int `json:"neverOpened"`
}

// Named is an object with its problem.
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
	rows := make([]*view.Row, 0, len(s.Instances))
	for n := range s.Instances {
		row := view.NewRow(&s.Instances[n])
		rows = append(rows, &row)
	}
	facts := s.Facts()
	facts.Rows = rows
	o := Overview{At: metav1.NewTime(s.Now), Dangers: doctor.Dangers(facts), Operator: doctor.Operator(s), Overview: view.NewOverview(rows, s.Now), Problems: problems(s, rows)}
	challenges := make([]view.Challenge, 0, len(s.Challenges))
	for n := range s.Challenges {
		challenges = append(challenges, view.NewChallenge(&s.Challenges[n], settings))
	}
	if s.Unreadable["nodes"] == "" && s.Unreadable["pods"] == "" {
		capacity := view.NewCapacity(s.Cluster(settings), rows, challenges)
		o.Capacity = &capacity
	}
	if s.Unreadable["services"] == "" {
		o.NodePorts = &view.Amount{Used: float64(s.NodePorts), Total: doctor.NodePortRange}
	}
	if s.Uses != nil {
		o.Use = countUses(s.Uses, rows, s.Now)
	}
	if s.Unreadable["challenges"] == "" {
		o.Challenges, o.Prepull = count(challenges)
		o.Prepared = doctor.PreparedInstances(s)
		o.Prepull.Enabled = set(s, "IMAGE_PREPULL_LEAD")
	}
	if s.Checks != nil {
		o.Checks = checks(s)
	}
	if s.Records != nil {
		o.Records = countRecords(s, records)
	}
	for _, kind := range []string{"instances", "nodes", "pods", "services", "challenges", "checks", "records", "uses"} {
		if message := s.Unreadable[kind]; message != "" {
			o.Unreadable = append(o.Unreadable, message)
		}
	}
	return o
}

// problems groups the instances that have a problem, the largest group first. Instances that wait for others are in the queue.
func problems(s doctor.Survey, rows []*view.Row) []ProblemGroup {
	pods := map[string][]corev1.Pod{}
	for _, p := range s.InstancePods {
		pods[p.Namespace] = append(pods[p.Namespace], p)
	}
	var findings []why.Finding
	for n, row := range rows {
		i := &s.Instances[n]
		if view.IsHealthy(i) || row.State == view.Waiting && !row.NeedsPerson {
			continue
		}
		findings = append(findings, why.Explain(why.View{Instance: i, Now: s.Now, Pods: pods[why.InstanceNamespace(i)]}))
	}
	all := []ProblemGroup{}
	for _, g := range why.Groups(findings) {
		if g.First.Level == console.Problem {
			slices.Sort(g.Names)
			all = append(all, ProblemGroup{g.First.Cause, g.First.Reason, g.First.Sentence, g.First.Do, g.Names})
		}
	}
	slices.SortStableFunc(all, func(a, b ProblemGroup) int { return len(b.Instances) - len(a.Instances) })
	return all
}

// count leaves out Challenges whose images are not pulled in advance.
func count(challenges []view.Challenge) (*Challenges, *Prepull) {
	all, pull := &Challenges{Total: len(challenges)}, &Prepull{}
	for n := range challenges {
		c := &challenges[n]
		if c.Frozen {
			all.Frozen++
		}
		if c.Problem != "" {
			all.NotAccepted = append(all.NotAccepted, Named{c.Namespace, c.Name, c.Problem})
		}
		switch {
		case c.Images == bergv1.ImagesPulled:
			pull.Pulled++
		case c.Images == bergv1.ImagesPulling:
			pull.Pulling++
		case c.Images == bergv1.ImagesScheduled:
			pull.Scheduled++
		case c.ImagesFailed():
			pull.Failed = append(pull.Failed, Named{c.Namespace, c.Name, c.ImagesMessage})
		}
	}
	return all, pull
}

// countUses leaves out instances that the gate does not serve.
func countUses(uses *view.Uses, rows []*view.Row, now time.Time) *Use {
	all := &Use{}
	for _, r := range rows {
		switch use := uses.Find(r, now); {
		case !use.Known:
		case use.Active:
			all.Active++
		case use.Last.IsZero() && use.Since.IsZero():
			all.NeverOpened++
		default:
			all.Idle++
		}
	}
	return all
}

// set reports whether a setting has a value other than none.
func set(s doctor.Survey, name string) bool {
	value, _ := s.Setting(name)
	return value != "" && value != "0"
}

// checks counts a result of a check together with whether another one is running.
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

// countRecords needs metadata alone: a record is created when its instance ends.
func countRecords(s doctor.Survey, namespace string) *Records {
	all := &Records{Enabled: set(s, "RECORD_RETENTION"), Namespace: namespace, Total: len(s.Records)}
	for n := range s.Records {
		if created := &s.Records[n].CreationTimestamp; all.Latest == nil || all.Latest.Before(created) {
			all.Latest = created
		}
	}
	return all
}
