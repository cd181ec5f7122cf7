package outcome

import (
	"errors"
	"slices"
)

// Problems keep a custom resource from its goal, in the order of the steps that they stopped. Each condition
// has one at most: the first.
type Problems []*Problem

// Add appends a problem; nil is none.
func (all *Problems) Add(p *Problem) {
	if p != nil && all.On(p.Condition) == nil {
		*all = append(*all, p)
	}
}

// Replace replaces the problem of the same condition, or appends p.
func (all *Problems) Replace(p *Problem) {
	if index := slices.IndexFunc(*all, func(other *Problem) bool { return other.Condition == p.Condition }); index >= 0 {
		(*all)[index] = p
		return
	}
	*all = append(*all, p)
}

// On returns the problem that shows on a condition, nil for none.
func (all Problems) On(condition string) *Problem {
	if index := slices.IndexFunc(all, func(p *Problem) bool { return p.Condition == condition }); index >= 0 {
		return all[index]
	}
	return nil
}

// First returns the first problem, nil for none.
func (all Problems) First() *Problem {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// Stale reports whether the observed state is out of date, so that nothing can be reported about it.
func (all Problems) Stale() bool {
	return slices.ContainsFunc(all, func(p *Problem) bool { return p.Class == Stale })
}

// Err returns the errors that must be tried again, nil for none.
func (all Problems) Err() error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Err)
	}
	return errors.Join(errs...)
}
