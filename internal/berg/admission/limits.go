package admission

import "k8s.io/apimachinery/pkg/types"

// Limits are the limits in the operator's settings. Zero: no limit.
type Limits struct {
	// All is the maximum number of started instances.
	All int
	// Namespace is the maximum number of started instances in one namespace.
	Namespace int
	// SourceInstances is the maximum number of started instances of one source.
	SourceInstances int
	// SourceBudget is the maximum cost of the started instances of one source together.
	SourceBudget int
}

// Challenge has the limits of a Challenge. The zero value stands for a Challenge that does not exist, and costs nothing.
type Challenge struct {
	// MaxInstances is the maximum number of its started instances. Zero: no limit.
	MaxInstances int
	// Cost is the part of its source's budget that one instance uses.
	Cost int
}

// Rules decide in addition to the instances.
type Rules struct {
	Limits
	// Challenge returns the present limits of a Challenge.
	Challenge func(types.NamespacedName) Challenge
}

// Limit reports whether any limit applies to an instance.
func (r Rules) Limit(i Instance) bool {
	return r.All > 0 || r.Namespace > 0 || r.Challenge(i.Challenge).MaxInstances > 0 ||
		i.Source != "" && (r.SourceInstances > 0 || r.SourceBudget > 0)
}

// limits may keep the first instance of an owner waiting, in the order in which they are checked. Only the first limit that
// is reached is reported.
var limits = []func(*tally, Instance) Reason{
	sourceInstances,
	sourceBudget,
	challengeLimit,
	namespaceLimit,
	allLimit,
	playersFirst,
}

// ownLimits concern an instance also if a prepared one has a slot for it.
var ownLimits = []func(*tally, Instance) Reason{
	sourceInstances,
	sourceBudget,
	namespaceLimit,
	playersFirst,
}

func sourceInstances(t *tally, i Instance) Reason {
	if i.Source != "" && reached(t.rules.SourceInstances, t.sources[instanceSource(i)].instances) {
		return SourceInstances
	}
	return Start
}

// sourceBudget keeps instances in order: a cheap one does not overtake an expensive one of the same source. AboveBudget is
// the exception. Such an instance cannot start at all, so it does not hold up its source.
func sourceBudget(t *tally, i Instance) Reason {
	budget, cost, s := t.rules.SourceBudget, t.rules.Challenge(i.Challenge).Cost, t.sources[instanceSource(i)]
	switch {
	case i.Source == "" || budget == 0 || cost == 0:
		return Start
	case cost > budget:
		return AboveBudget
	// The first instance that does not fit closes the budget for the rest of this round. Without that, cheap instances would use
	// each remainder, and the expensive one would never start.
	case s.closed || s.cost+cost > budget:
		return SourceBudget
	}
	return Start
}

func challengeLimit(t *tally, i Instance) Reason {
	if reached(t.rules.Challenge(i.Challenge).MaxInstances, t.challenges[i.Challenge]) {
		return ChallengeFull
	}
	return Start
}

// namespaceLimit leaves out prepared instances: they are all in the operator's namespace, and belong to no tenant. They count
// against the namespace of the instance that takes them over.
func namespaceLimit(t *tally, i Instance) Reason {
	if !i.Prepared && reached(t.rules.Namespace, t.namespaces[i.Key.Namespace]) {
		return NamespaceFull
	}
	return Start
}

func allLimit(t *tally, _ Instance) Reason {
	if reached(t.rules.All, t.all) {
		return Full
	}
	return Start
}

func playersFirst(t *tally, i Instance) Reason {
	if (i.Check || i.Prepared) && t.playersWait {
		return PlayersFirst
	}
	return Start
}

func reached(limit, n int) bool { return limit > 0 && n >= limit }

// source is a user or team of a platform. Two platforms, in two namespaces, may give the same name
// to different users.
type source struct{ namespace, name string }

func instanceSource(i Instance) source { return source{i.Key.Namespace, i.Source} }

// usage counts the started instances of a source.
type usage struct {
	instances, cost int
	// closed: an instance waits for more budget than remains. Cheaper instances that are younger do not use the rest, or
	// the expensive one would never start.
	closed bool
}

// tally counts the started instances, and the instances that this decision starts.
type tally struct {
	rules      Rules
	all        int
	challenges map[types.NamespacedName]int
	namespaces map[string]int
	sources    map[source]usage
	// playersWait: an instance that belongs to no check waits for a slot that others have. Then no instance of a check
	// starts, even if its own limits allow it.
	playersWait bool
}

func newTally(limits Rules) *tally {
	return &tally{rules: limits, challenges: map[types.NamespacedName]int{}, namespaces: map[string]int{}, sources: map[source]usage{}}
}

// admit counts an instance if no limit keeps it waiting.
func (t *tally) admit(i Instance) Reason {
	reason := t.check(i, limits)
	if reason == Start {
		t.add(i)
	}
	return reason
}

// takeOver is admit for an instance that takes over a prepared one, which counts already. The limits of the Challenge and of all
// instances are not asked: the prepared one has the slot that the instance takes.
func (t *tally) takeOver(i Instance) Reason {
	reason := t.check(i, ownLimits)
	if reason == Start {
		t.addOwn(i)
	}
	return reason
}

func (t *tally) check(i Instance, limits []func(*tally, Instance) Reason) Reason {
	for _, limit := range limits {
		if reason := limit(t, i); reason != Start {
			t.refused(i, reason)
			return reason
		}
	}
	return Start
}

func (t *tally) add(i Instance) {
	t.all++
	t.challenges[i.Challenge]++
	if !i.Prepared {
		t.addOwn(i)
	}
}

// addOwn counts what an instance has and a prepared one has not.
func (t *tally) addOwn(i Instance) {
	t.namespaces[i.Key.Namespace]++
	if i.Source != "" {
		s := t.sources[instanceSource(i)]
		s.instances++
		s.cost += t.rules.Challenge(i.Challenge).Cost
		t.sources[instanceSource(i)] = s
	}
}

// refused records which refusals affect later decisions of the same round.
func (t *tally) refused(i Instance, reason Reason) {
	switch reason {
	case SourceBudget:
		s := t.sources[instanceSource(i)]
		s.closed = true
		t.sources[instanceSource(i)] = s
	// A player who waits for an owner or a budget of its own gets no slot sooner if a check leaves one free.
	case ChallengeFull, NamespaceFull, Full:
		t.playersWait = t.playersWait || !i.Check && !i.Prepared
	}
}
