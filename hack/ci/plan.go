package main

import (
	"cmp"
	"slices"
	"time"
)

// outcome is how far a stage has come, and the last column of the table.
type outcome string

const (
	waiting  outcome = ""
	running  outcome = "running"
	passed   outcome = "passed"
	failed   outcome = "FAILED"
	ended    outcome = "ended"   // because another failed, or a signal came
	notRun   outcome = "NOT RUN" // the budget did not reach
	notTried outcome = "not reached"
)

// startable returns those of the waiting stages that may start now, in their order: what they need has passed, what
// they hold is free, and so is a slot.
func startable(list []stage, state map[string]outcome) []stage {
	busy, held := map[class]int{}, map[string]bool{}
	take := func(s stage) {
		busy[s.class] += s.slots()
		if s.holds != "" {
			held[s.holds] = true
		}
	}
	for _, s := range list {
		if state[s.name] == running {
			take(s)
		}
	}
	var found []stage
	for _, s := range list {
		blocked := slices.ContainsFunc(s.after, func(need string) bool { return state[need] != passed })
		if state[s.name] != waiting || blocked || held[s.holds] || busy[s.class]+s.slots() > slots[s.class] {
			continue
		}
		take(s)
		found = append(found, s)
	}
	return found
}

// makespan is how long the stages take together, if each takes what it costs.
func makespan(list []stage, missing []string) time.Duration {
	var now time.Duration
	state, ends := map[string]outcome{}, map[string]time.Duration{}
	for {
		for _, s := range startable(list, state) {
			state[s.name], ends[s.name] = running, now+s.cost(missing)
		}
		if len(ends) == 0 {
			return now
		}
		next := ""
		for ended := range ends {
			if next == "" || ends[ended] < ends[next] {
				next = ended
			}
		}
		now = ends[next]
		delete(ends, next)
		state[next] = passed
	}
}

// within chooses what fits into the budget on a machine on which these parts are missing. What cannot be concerned by
// the change goes first, then what costs most together with what is built for it alone. Where nothing is missing,
// nothing goes.
func within(budget time.Duration, list []stage, changed, missing []string) (chosen, left []stage) {
	chosen = slices.Clone(list)
	for len(missing) > 0 && makespan(chosen, missing) > budget {
		candidates := slices.DeleteFunc(slices.Clone(chosen), func(s stage) bool { return !s.optional || s.class != suite })
		if len(candidates) == 0 {
			break
		}
		total := func(list []stage) (sum time.Duration) {
			for _, s := range list {
				sum += s.cost(missing)
			}
			return sum
		}
		saved := func(s stage) time.Duration { return total(chosen) - total(without(chosen, s.name)) }
		slices.SortStableFunc(candidates, func(a, b stage) int {
			if a.concerned(changed) != b.concerned(changed) {
				if a.concerned(changed) {
					return 1
				}
				return -1
			}
			return cmp.Compare(saved(b), saved(a))
		})
		chosen = without(chosen, candidates[0].name)
	}
	for _, s := range list {
		if !slices.ContainsFunc(chosen, func(c stage) bool { return c.name == s.name }) {
			left = append(left, s)
		}
	}
	return chosen, left
}

// without is the list without the stage of this name, those that need it, and the builds that only these needed.
func without(list []stage, remove string) []stage {
	left := map[string]bool{remove: true}
	for changed := true; changed; {
		changed = false
		for _, s := range list {
			if left[s.name] {
				continue
			}
			needed := slices.ContainsFunc(list, func(other stage) bool { return slices.Contains(other.after, s.name) })
			wanted := slices.ContainsFunc(list, func(other stage) bool { return !left[other.name] && slices.Contains(other.after, s.name) })
			lost := slices.ContainsFunc(s.after, func(need string) bool { return left[need] })
			if lost || len(s.builds) > 0 && needed && !wanted {
				left[s.name], changed = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(s stage) bool { return left[s.name] })
}
