package admission

import "k8s.io/apimachinery/pkg/types"

// Limits are those of the operator's settings. Zero: none.
type Limits struct {
	// All is how many instances may be started at a time.
	All int
	// Namespace is how many of them may be of one namespace.
	Namespace int
	// SourceInstances is how many of them may be of one source.
	SourceInstances int
	// SourceBudget is what those of one source may cost together.
	SourceBudget int
}

// Challenge is what a Challenge says about its instances. The zero value is that of one that does
// not exist, and costs nothing.
type Challenge struct {
	// MaxInstances is how many of them may be started at a time. Zero: any number.
	MaxInstances int
	// Cost is what one takes of the budget of its source.
	Cost int
}

// Rules are what decides in addition to the instances.
type Rules struct {
	Limits
	// Challenge returns what a Challenge says now.
	Challenge func(types.NamespacedName) Challenge
}

// Limit reports whether any limit applies to an instance.
func (r Rules) Limit(i Instance) bool {
	return r.All > 0 || r.Namespace > 0 || r.Challenge(i.Challenge).MaxInstances > 0 ||
		i.Source != "" && (r.SourceInstances > 0 || r.SourceBudget > 0)
}

// limits are what may keep the first instance of an owner waiting, in the order in which they are
// checked. Only the first that is reached is reported.
var limits = []func(*tally, Instance) Reason{
	sourceInstances,
	sourceBudget,
	challengeLimit,
	namespaceLimit,
	allLimit,
	playersFirst,
}

func sourceInstances(t *tally, i Instance) Reason {
	if i.Source != "" && reached(t.rules.SourceInstances, t.sources[instanceSource(i)].instances) {
		return SourceInstances
	}
	return Start
}

func sourceBudget(t *tally, i Instance) Reason {
	budget, cost, s := t.rules.SourceBudget, t.rules.Challenge(i.Challenge).Cost, t.sources[instanceSource(i)]
	switch {
	case i.Source == "" || budget == 0 || cost == 0:
		return Start
	case cost > budget:
		return AboveBudget
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

func namespaceLimit(t *tally, i Instance) Reason {
	if reached(t.rules.Namespace, t.namespaces[i.Key.Namespace]) {
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
	if i.Check && t.playersWait {
		return PlayersFirst
	}
	return Start
}

func reached(limit, n int) bool { return limit > 0 && n >= limit }

// source is a user or team of a platform. Two platforms, in two namespaces, may give the same name
// to different users.
type source struct{ namespace, name string }

func instanceSource(i Instance) source { return source{i.Key.Namespace, i.Source} }

// usage is what a source has.
type usage struct {
	instances, cost int
	// closed: an instance waits for more budget than is left. Cheaper ones that are younger do not
	// take what it waits for.
	closed bool
}

// tally counts what is started.
type tally struct {
	rules      Rules
	all        int
	challenges map[types.NamespacedName]int
	namespaces map[string]int
	sources    map[source]usage
	// playersWait: an instance that belongs to no check waits for a slot that others have.
	playersWait bool
}

func newTally(limits Rules) *tally {
	return &tally{rules: limits, challenges: map[types.NamespacedName]int{}, namespaces: map[string]int{}, sources: map[source]usage{}}
}

// admit counts an instance if no limit keeps it waiting.
func (t *tally) admit(i Instance) Reason {
	for _, limit := range limits {
		if reason := limit(t, i); reason != Start {
			t.refused(i, reason)
			return reason
		}
	}
	t.add(i)
	return Start
}

func (t *tally) add(i Instance) {
	t.all++
	t.challenges[i.Challenge]++
	t.namespaces[i.Key.Namespace]++
	if i.Source != "" {
		s := t.sources[instanceSource(i)]
		s.instances++
		s.cost += t.rules.Challenge(i.Challenge).Cost
		t.sources[instanceSource(i)] = s
	}
}

func (t *tally) refused(i Instance, reason Reason) {
	switch reason {
	case SourceBudget:
		s := t.sources[instanceSource(i)]
		s.closed = true
		t.sources[instanceSource(i)] = s
	case ChallengeFull, NamespaceFull, Full:
		t.playersWait = t.playersWait || !i.Check
	}
}
