package livepage

import (
	"cmp"
	"slices"

	"github.com/bergctf/berg-operator/internal/berg/view"
)

// Summary is the head of the page for one namespace.
type Summary struct {
	view.Overview
	Counts     []Count
	Challenges []ChallengeLine
	// Dangers endanger the event, the worst first. Unseen names the checks that this program cannot do.
	Dangers []view.Health
	Unseen  []string
	// First are the first instances of the queue.
	First []*view.Row
	// Capacity is the capacity of the cluster for more instances.
	Capacity Capacity
}

// Count is the number of instances in a state.
type Count struct {
	State view.State
	N     int
}

// ChallengeLine is one line of the table of Challenges.
type ChallengeLine struct {
	view.Challenge
	*view.Starts
	Running, Waiting, Failed int
	// NeedsPerson: the Challenge, or one of its instances, has a problem that stays until a person acts.
	NeedsPerson bool
	// Check is the last result of a solver.
	Check checkState
	// FreeCapacity is the range of further instances that fit, from the certain to the possible number, and the limit.
	FreeCapacity string
}

// maxQueue is the number of instances of the queue that the page lists.
const maxQueue = 20

// summarise counts rows. Every Challenge has a line, also without an instance.
func summarise(rows []*view.Row, known map[string]view.Challenge, checks map[string]checkState, capacity Capacity, overview view.Overview) Summary {
	s := Summary{Overview: overview, Capacity: capacity}
	s.Dangers, s.Unseen = findDangers(rows, capacity)
	for _, state := range view.States {
		s.Counts = append(s.Counts, Count{state, overview.Instances.ByState[state]})
	}
	for _, r := range rows {
		if _, exists := known[r.Challenge]; !exists {
			known[r.Challenge] = view.Challenge{Namespace: r.Namespace, Name: r.Challenge}
		}
	}
	for name, challenge := range known {
		line := ChallengeLine{Challenge: challenge, Starts: overview.Starts[name], Check: checks[name], FreeCapacity: capacity.freeCapacity(challenge)}
		if line.Starts == nil {
			line.Starts = &view.Starts{}
		}
		line.Running, line.Failed = line.ByState[view.Running], line.ByState[view.Failed]
		line.Waiting = line.ByState[view.Waiting] + line.ByState[view.Starting]
		line.NeedsPerson = challenge.Problem != "" || line.NeedPerson > 0
		s.Challenges = append(s.Challenges, line)
	}
	slices.SortFunc(s.Challenges, func(a, b ChallengeLine) int {
		return cmp.Or(-cmp.Compare(a.Failed, b.Failed), -cmp.Compare(a.Waiting, b.Waiting), cmp.Compare(a.Name, b.Name))
	})
	s.First = s.Queue.Rows[:min(len(s.Queue.Rows), maxQueue)]
	return s
}

// findDangers does the health checks of kubectl berg doctor and status with what the page knows. It reads no object of
// administrators, so the statuses of instances decide.
func findDangers(rows []*view.Row, capacity Capacity) (dangers []view.Health, unseen []string) {
	facts := view.Facts{Rows: rows, Platform: &view.Platform{Installed: true, Ready: 1, Want: 1}}
	if capacity.NodePorts.Total > 0 {
		facts.NodePorts = &capacity.NodePorts
	}
	for _, h := range view.CheckHealth(facts) {
		switch h.Level {
		case view.Danger, view.Concern:
			dangers = append(dangers, h)
		case view.NotLookedAt:
			unseen = append(unseen, h.Check)
		case view.Fine:
		}
	}
	return dangers, unseen
}
