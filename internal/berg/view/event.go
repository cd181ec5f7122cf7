package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// endsSoon is the time within which an instance ends soon.
const endsSoon = 15 * time.Minute

// Overview is all instances of an event at one moment.
type Overview struct {
	Instances Instances `json:"instances"`
	Queue     Queue     `json:"queue"`
	// Starts are the instances of each Challenge, by its name.
	Starts map[string]*Starts `json:"-"`
}

// Instances counts the instances of players, and Prepared those without a player.
type Instances struct {
	Prepared   int                  `json:"prepared,omitempty"`
	Total      int                  `json:"total"`
	Namespaces int                  `json:"namespaces"`
	ByPhase    map[bergv1.Phase]int `json:"byPhase"`
	ByState    map[State]int        `json:"byState"`
	// NeedPerson have a problem that waiting does not solve.
	NeedPerson int `json:"needPerson"`
	// EndSoon expire within 15 minutes, Frozen do not expire.
	EndSoon int `json:"endSoon"`
	Frozen  int `json:"frozen"`
	// Outdated run an earlier version of their Challenge or of the operator's settings.
	Outdated int `json:"outdated"`
}

// Queue has the instances that wait for something else to end.
type Queue struct {
	ByCause map[bergv1.Cause]int `json:"byCause,omitempty"`
	// FirstSeconds is how long the first instance has waited for a limit.
	FirstSeconds *int64 `json:"firstSeconds,omitempty"`
	// Limits are the limits that instances wait for, the limit with most instances first.
	Limits []Limit `json:"limits,omitempty"`
	// Rows are the waiting instances in the order of their creation.
	Rows []*Row `json:"-"`
}

// Limit is a limit that is reached.
type Limit struct {
	Message   string `json:"message"`
	Instances int    `json:"instances"`
}

// Starts counts the instances of a Challenge, and has the times of their starts.
type Starts struct {
	ByState    map[State]int
	NeedPerson int
	// P50 and P99 are the times from creation to Running, Stages the medians of the stages, Slowest the stage with the largest one.
	P50, P99 time.Duration
	Stages   []Stage
	Slowest  string
	times    []time.Duration
	stages   map[string][]time.Duration
}

// NewOverview counts instances. Nothing in it depends on the order of the rows.
func NewOverview(rows []*Row, now time.Time) Overview {
	o := Overview{
		Instances: Instances{ByPhase: map[bergv1.Phase]int{}, ByState: map[State]int{}},
		Queue:     Queue{ByCause: map[bergv1.Cause]int{}},
		Starts:    map[string]*Starts{},
	}
	namespaces, limits := map[string]bool{}, map[string]int{}
	for _, r := range rows {
		if r.Prepared {
			o.Instances.Prepared++
			continue
		}
		namespaces[r.Namespace] = true
		o.Instances.add(r, now)
		if o.Starts[r.Challenge] == nil {
			o.Starts[r.Challenge] = &Starts{ByState: map[State]int{}, stages: map[string][]time.Duration{}}
		}
		o.Starts[r.Challenge].add(r)
		if r.State == Waiting {
			o.Queue.add(r, now, limits)
		}
	}
	o.Instances.Namespaces = len(namespaces)
	for _, starts := range o.Starts {
		starts.summarise()
	}
	for message, n := range limits {
		o.Queue.Limits = append(o.Queue.Limits, Limit{message, n})
	}
	slices.SortFunc(o.Queue.Limits, func(a, b Limit) int { return cmp.Or(b.Instances-a.Instances, strings.Compare(a.Message, b.Message)) })
	slices.SortFunc(o.Queue.Rows, func(a, b *Row) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
	return o
}

func (i *Instances) add(r *Row, now time.Time) {
	i.Total++
	i.ByPhase[r.Phase]++
	i.ByState[r.State]++
	if r.NeedsPerson {
		i.NeedPerson++
	}
	if r.Outdated {
		i.Outdated++
	}
	switch {
	case r.Frozen:
		i.Frozen++
	case !r.Expires.IsZero() && r.State != Ending && r.Expires.Sub(now) < endsSoon:
		i.EndSoon++
	}
}

// add counts a waiting instance. Only an instance with the cause Queued waits for a limit; others wait for their owner, a
// freeze or capacity.
func (q *Queue) add(r *Row, now time.Time, limits map[string]int) {
	q.Rows = append(q.Rows, r)
	q.ByCause[r.Cause]++
	if r.Cause != bergv1.CauseQueued {
		return
	}
	if waited := int64(now.Sub(r.Created) / time.Second); q.FirstSeconds == nil || *q.FirstSeconds < waited {
		q.FirstSeconds = &waited
	}
	if c := meta.FindStatusCondition(r.Conditions, bergv1.ConditionAdmitted); c != nil {
		text, _, _ := strings.Cut(c.Message, ". ") // the next sentence says that it starts automatically
		limits[strings.TrimPrefix(text, "Queued: ")]++
	}
}

func (s *Starts) add(r *Row) {
	s.ByState[r.State]++
	if r.NeedsPerson {
		s.NeedPerson++
	}
	if r.Ready.IsZero() {
		return
	}
	s.times = append(s.times, r.Ready.Sub(r.Created))
	for _, stage := range r.Stages {
		s.stages[stage.Name] = append(s.stages[stage.Name], stage.Took)
	}
}

// summarise calculates the percentiles. Stages without a time are left out.
func (s *Starts) summarise() {
	slices.Sort(s.times)
	s.P50, s.P99 = Quantile(s.times, 50), Quantile(s.times, 99)
	largest := time.Duration(0)
	for _, field := range StageFields {
		times := s.stages[field.Name]
		if len(times) == 0 {
			continue
		}
		slices.Sort(times)
		median := Quantile(times, 50)
		s.Stages = append(s.Stages, Stage{Name: field.Name, Took: median})
		if median > largest {
			s.Slowest, largest = field.Name, median
		}
	}
}

// Quantile returns a percentile of sorted times, 0 for none.
func Quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}
