package evening

import (
	"cmp"
	"slices"
	"time"

	"github.com/bergctf/berg-operator/internal/berg/plan"
)

// Summary is what the head of the page says of one namespace.
type Summary struct {
	Counts     []Count
	Problems   int
	Challenges []ChallengeSummary
	// Queue are those that wait, in the order of their creation; Waiting is how many there are.
	Queue   []*Row
	Waiting int
	// Capacity is what there is room for.
	Capacity Capacity
}

// Count is how many instances are in a state.
type Count struct {
	State State
	N     int
}

// ChallengeSummary is one line of the table of challenges.
type ChallengeSummary struct {
	Name                     string
	Running, Waiting, Failed int
	P50, P99                 time.Duration
	// Stages are the parts of a start with the median of each, Slowest is the one that takes most.
	Stages  []Stage
	Slowest string
	Problem bool
	// FreeCapacity is for how many more instances there is room, from what is certain to what is possible, and what ends it.
	FreeCapacity string
	// State is that of the Challenge itself, and Check the last result of a solver.
	State  challengeState
	Check  checkState
	times  []time.Duration
	stages map[string][]time.Duration
	own    int
}

// maxQueue is how many of the queue the page lists.
const maxQueue = 20

// summarise counts rows. Every Challenge has a line, also without an instance.
func summarise(rows []*Row, known map[string]challengeState, checks map[string]checkState, capacity Capacity) Summary {
	s := Summary{Capacity: capacity}
	counts, challenges := map[State]int{}, map[string]*ChallengeSummary{}
	for name, state := range known {
		challenges[name] = &ChallengeSummary{Name: name, stages: map[string][]time.Duration{}, State: state, Check: checks[name], Problem: state.Problem != ""}
	}
	for _, r := range rows {
		counts[r.State]++
		c := challenges[r.Challenge]
		if c == nil {
			c = &ChallengeSummary{Name: r.Challenge, stages: map[string][]time.Duration{}}
			challenges[r.Challenge] = c
		}
		c.own++
		switch r.State {
		case Running:
			c.Running++
		case Failed:
			c.Failed++
		case Waiting, Starting:
			c.Waiting++
		case Ending:
		}
		if r.Problem {
			s.Problems++
			c.Problem = true
		}
		if r.State == Waiting {
			s.Queue = append(s.Queue, r)
		}
		if !r.Ready.IsZero() {
			c.times = append(c.times, r.Ready.Sub(r.Created))
			for _, stage := range r.Stages {
				c.stages[stage.Name] = append(c.stages[stage.Name], stage.Took)
			}
		}
	}
	for _, state := range states {
		s.Counts = append(s.Counts, Count{state, counts[state]})
	}
	for _, c := range challenges {
		slices.Sort(c.times)
		c.P50, c.P99 = quantile(c.times, 50), quantile(c.times, 99)
		slowest := time.Duration(0)
		for _, name := range stageNames {
			slices.Sort(c.stages[name])
			median := quantile(c.stages[name], 50)
			if median > slowest {
				c.Slowest, slowest = name, median
			}
			if len(c.stages[name]) > 0 {
				c.Stages = append(c.Stages, Stage{Name: name, Took: median})
			}
		}
		c.FreeCapacity = formatFreeCapacity(c, capacity)
		s.Challenges = append(s.Challenges, *c)
	}
	slices.SortFunc(s.Challenges, func(a, b ChallengeSummary) int {
		return cmp.Or(-cmp.Compare(a.Failed, b.Failed), -cmp.Compare(a.Waiting, b.Waiting), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Queue, func(a, b *Row) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
	s.Waiting = len(s.Queue)
	s.Queue = s.Queue[:min(len(s.Queue), maxQueue)]
	return s
}

// quantile returns the given percentile of sorted times, 0 for none.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// formatFreeCapacity says for how many more instances of a Challenge there is room.
func formatFreeCapacity(c *ChallengeSummary, capacity Capacity) string {
	switch {
	case c.State.Frozen:
		return "none: frozen"
	case c.State.shape == nil:
		return ""
	}
	free, limited := plan.CalculateFreeCapacity(*c.State.shape, c.own, capacity.stock, capacity.taken)
	if !limited {
		return ""
	}
	return free.String()
}
