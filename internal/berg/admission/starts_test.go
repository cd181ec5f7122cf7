package admission

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func startedNames(all []Instance) (names []string) {
	for _, i := range all {
		if i.Started {
			names = append(names, i.Key.Name)
		}
	}
	return names
}

func TestOwnStartsCountBeforeTheCacheShowsThem(t *testing.T) {
	var s Starts
	a, b, c := instance(1, "web"), instance(2, "web"), instance(3, "web")
	merge := func(want []string, all ...Instance) {
		t.Helper()
		unknown := s.Merge(all)
		if got := startedNames(all); !slices.Equal(got, want) {
			t.Errorf("started are %v, want %v", got, want)
		}
		if len(unknown) > 0 {
			t.Errorf("the outcome of %v is unknown", unknown)
		}
	}
	merge(nil, a, b, c)
	s.Wrote(a.UID, 10)
	s.Wrote(b.UID, 11)
	merge([]string{"0001", "0002"}, a, b, c)
	merge([]string{"0001", "0002"}, a, b, c) // again: the cache is as late as before

	a.Version, a.Started = 10, true
	merge([]string{"0001", "0002"}, a, b, c)
	merge([]string{"0001"}, a, c) // b is gone
	merge([]string{"0001"}, a, b, c)

	s.Wrote(c.UID, 12)
	c.Version = 13 // another client has removed the instance ID
	merge([]string{"0001"}, a, c)
	merge([]string{"0001"}, a, c)
	if len(s.versions) > 0 {
		t.Errorf("%v is remembered", s.versions)
	}
}

func TestAStartOfUnknownOutcomeCountsUntilTheAPIServerSaysNo(t *testing.T) {
	var s Starts
	a, b := instance(1, "web"), instance(2, "web")
	s.Unknown(a.UID)
	for range 2 {
		all := []Instance{a, b}
		unknown := s.Merge(all)
		if len(unknown) != 1 || unknown[0].UID != a.UID || !all[0].Started || all[1].Started {
			t.Errorf("%v of %v", unknown, all)
		}
	}
	s.NotWritten(a.UID)
	all := []Instance{a, b}
	if unknown := s.Merge(all); len(unknown) > 0 || len(startedNames(all)) > 0 {
		t.Errorf("%v of %v", unknown, all)
	}

	s.Unknown(a.UID)
	s.Wrote(a.UID, 10)
	all = []Instance{a, b}
	if unknown := s.Merge(all); len(unknown) > 0 || !all[0].Started {
		t.Errorf("%v of %v", unknown, all)
	}
}

func TestTheCacheHasCaughtUpWhenItShowsWhatWasListed(t *testing.T) {
	a, b, c := instance(1, "web"), instance(2, "web"), instance(3, "web")
	listed := Listed{}
	for _, i := range []Instance{a, b, c} {
		i.Version += 10
		listed[i.UID] = i
	}
	want := func(want []string, cached ...Instance) {
		t.Helper()
		var got []string
		for _, i := range listed.Unseen(cached) {
			got = append(got, i.Key.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("unseen are %v, want %v", got, want)
		}
	}
	want([]string{"0001", "0002", "0003"}, a, b)
	a.Version += 10
	want([]string{"0002", "0003"}, a, b)
	b.Version += 11
	want([]string{"0003"}, b) // a was shown, and is gone since
	delete(listed, c.UID)
	want(nil)
}

// world is a cluster, and an operator whose cache is late, whose requests fail and which may be killed.
type world struct {
	t      *testing.T
	random *rand.Rand
	rules  Rules
	// all exist.
	all     map[types.UID]Instance
	version uint64
	age     int
	// events have not reached the cache.
	events []func(cache map[types.UID]Instance)
	cache  map[types.UID]Instance
	starts Starts
	listed Listed
}

func (w *world) write(i Instance) {
	w.version++
	i.Version = w.version
	w.all[i.UID] = i
	w.events = append(w.events, func(cache map[types.UID]Instance) { cache[i.UID] = i })
}

func (w *world) pick(among map[types.UID]Instance) (Instance, bool) {
	uids := slices.Sorted(maps.Keys(among))
	if len(uids) == 0 {
		return Instance{}, false
	}
	return among[uids[w.random.IntN(len(uids))]], true
}

func (w *world) create() {
	w.age++
	i := instance(w.age, []string{"web", "pwn", "shop"}[w.random.IntN(3)])
	if w.random.IntN(3) == 0 {
		i.Owner = fmt.Sprint("owner ", w.random.IntN(4))
	}
	i.Source = []string{"", "a", "b"}[w.random.IntN(3)]
	i.Key.Namespace = []string{"event", "other"}[w.random.IntN(2)]
	i.Check = w.random.IntN(10) == 0
	i.Blocked = w.random.IntN(10) == 0
	w.write(i)
}

// change is what other clients and the rest of the operator do.
func (w *world) change() {
	i, ok := w.pick(w.all)
	if !ok {
		return
	}
	switch {
	case i.Ending || !i.Started:
		if !i.Started && w.random.IntN(3) == 0 {
			i.Blocked = !i.Blocked
			w.write(i)
			return
		}
		delete(w.all, i.UID)
		w.events = append(w.events, func(cache map[types.UID]Instance) { delete(cache, i.UID) })
	default:
		i.Ending = true
		w.write(i)
	}
}

func (w *world) event() {
	if len(w.events) > 0 {
		next := w.events[0]
		w.events = w.events[1:]
		next(w.cache)
	}
}

// kill has another process take over. The cache is behind; what the API server lists is not.
func (w *world) kill() {
	w.starts = Starts{}
	w.listed = maps.Clone(w.all)
}

// round is one decision with its writes.
func (w *world) round() (starts int) {
	all := slices.Collect(maps.Values(w.cache))
	for _, unseen := range w.listed.Unseen(all) {
		if _, exists := w.all[unseen.UID]; exists {
			return 0 // and looks again later
		}
		delete(w.listed, unseen.UID)
	}
	for _, i := range w.starts.Merge(all) {
		if live := w.all[i.UID]; live.Started {
			w.starts.Wrote(i.UID, live.Version)
		} else {
			w.starts.NotWritten(i.UID)
		}
	}
	decisions := Decide(all, w.rules)
	checkDecisions(w.t, all, decisions, w.rules)
	for _, d := range decisions {
		if d.Reason != Start {
			continue
		}
		if w.random.IntN(10) == 0 {
			break // the rest waits for the next round
		}
		starts++
		live, exists := w.all[d.UID]
		switch conflict := !exists || live.Version != d.Version; {
		case w.random.IntN(10) == 0:
			w.starts.Unknown(d.UID)
			if !conflict && w.random.IntN(2) == 0 {
				w.start(live)
			}
		case conflict:
			w.starts.NotWritten(d.UID)
		default:
			w.start(live)
			w.starts.Wrote(d.UID, w.version)
		}
	}
	return starts
}

func (w *world) start(i Instance) {
	owners, all, challenge, namespace, ofSource, cost := 0, 1, 1, 1, 1, w.rules.Challenge(i.Challenge).Cost
	for _, o := range w.all {
		if !o.Started {
			continue
		}
		all++
		owners += isTrue(o.Owner == i.Owner)
		challenge += isTrue(o.Challenge == i.Challenge)
		namespace += isTrue(o.Key.Namespace == i.Key.Namespace)
		if instanceSource(o) == instanceSource(i) {
			ofSource++
			cost += w.rules.Challenge(o.Challenge).Cost
		}
	}
	over := func(n, limit int) bool { return limit > 0 && n > limit }
	if owners > 0 || over(all, w.rules.All) || over(challenge, w.rules.Challenge(i.Challenge).MaxInstances) || over(namespace, w.rules.Namespace) ||
		i.Source != "" && (over(ofSource, w.rules.SourceInstances) || over(cost, w.rules.SourceBudget)) {
		w.t.Fatalf("%s is one too many: %d of its owner before it, %d in all, %d of its Challenge, %d of its namespace, %d of its source, which cost %d",
			i.Key.Name, owners, all, challenge, namespace, ofSource, cost)
	}
	i.Started = true
	w.write(i)
}

// checkDecisions compares decisions with what is counted from the beginning for each of them: none is
// decided about twice or not at all, none is too many, and none waits that need not.
func checkDecisions(t *testing.T, all []Instance, decisions []Decision, limits Rules) {
	t.Helper()
	waiting := 0
	for _, i := range all {
		waiting += isTrue(i.Waits())
	}
	if len(decisions) != waiting {
		t.Fatalf("%d decisions about %d instances that wait", len(decisions), waiting)
	}
	now := slices.DeleteFunc(slices.Clone(all), func(i Instance) bool { return !i.Started })
	playersWait, closed := false, map[types.NamespacedName]bool{}
	for n, d := range decisions {
		if n > 0 {
			if before := decisions[n-1]; before.Check && !d.Check || before.Check == d.Check && byAge(before.Instance, d.Instance) >= 0 {
				t.Fatalf("%s comes after %s", d.Key.Name, before.Key.Name)
			}
		}
		keeps := reasonsAgainst(d, all, now, limits, playersWait, closed)
		must := slices.Contains(slices.Collect(maps.Values(keeps)), true)
		if must != (d.Reason != Start) || must && !keeps[d.Reason] {
			t.Fatalf("%s: %q, but %v", d.Key.Name, d.Reason, keeps)
		}
		switch d.Reason {
		case Start:
			now = append(now, d.Instance)
		case SourceBudget:
			closed[types.NamespacedName{Namespace: d.Key.Namespace, Name: d.Source}] = true
		case ChallengeFull, NamespaceFull, Full:
			playersWait = playersWait || !d.Check
		}
	}
}

// reasonsAgainst returns which reasons keep the instance of a decision from starting, counted from the beginning: now
// are the instances that exist, closed the sources whose budget is taken.
func reasonsAgainst(d Decision, all, now []Instance, limits Rules, playersWait bool, closed map[types.NamespacedName]bool) map[Reason]bool {
	count := func(same func(Instance) bool) (n, cost int) {
		for _, i := range now {
			if same(i) {
				n++
				cost += limits.Challenge(i.Challenge).Cost
			}
		}
		return n, cost
	}
	total, _ := count(func(Instance) bool { return true })
	ofChallenge, _ := count(func(i Instance) bool { return i.Challenge == d.Challenge })
	ofNamespace, _ := count(func(i Instance) bool { return i.Key.Namespace == d.Key.Namespace })
	ofSource, spent := count(func(i Instance) bool { return i.Source == d.Source && i.Key.Namespace == d.Key.Namespace })
	sourceKey := types.NamespacedName{Namespace: d.Key.Namespace, Name: d.Source}
	own := limits.Challenge(d.Challenge)
	hasBudget := d.Source != "" && limits.SourceBudget > 0 && own.Cost > 0
	first := !slices.ContainsFunc(all, func(i Instance) bool {
		return i.Owner == d.Owner && i.UID != d.UID && (i.Started || i.Waits() && byAge(i, d.Instance) < 0)
	})
	return map[Reason]bool{
		OwnerBusy:       !first,
		SourceInstances: d.Source != "" && limits.SourceInstances > 0 && ofSource >= limits.SourceInstances,
		AboveBudget:     hasBudget && own.Cost > limits.SourceBudget,
		SourceBudget:    hasBudget && (closed[sourceKey] || spent+own.Cost > limits.SourceBudget),
		ChallengeFull:   own.MaxInstances > 0 && ofChallenge >= own.MaxInstances,
		NamespaceFull:   limits.Namespace > 0 && ofNamespace >= limits.Namespace,
		Full:            limits.All > 0 && total >= limits.All,
		PlayersFirst:    d.Check && playersWait,
	}
}

func TestNeverTooManyInTheirOrderAndNoneForgotten(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 22))
		limit := func(most int) int { return random.IntN(most + 1) }
		w := &world{
			t: t, random: random, all: map[types.UID]Instance{}, cache: map[types.UID]Instance{},
			rules: rules(Limits{All: limit(10), Namespace: limit(8), SourceInstances: limit(4), SourceBudget: limit(6)}, map[string]Challenge{
				"web": {Cost: 1}, "pwn": {MaxInstances: 1 + limit(4), Cost: limit(4)}, "shop": {MaxInstances: limit(2), Cost: 1},
			}),
		}
		late := 20 + random.IntN(50) // percent of the steps that bring an event
		for range 600 {
			switch n := random.IntN(100); {
			case n < 15:
				w.create()
			case n < 25:
				w.change()
			case n < 25+late:
				w.event()
			case n < 99:
				w.round()
			default:
				w.kill()
			}
		}
		// From now on nothing happens but what is under way.
		for quiet := 0; quiet < 20; quiet++ {
			for len(w.events) > 0 {
				w.event()
			}
			if w.round() > 0 {
				quiet = 0
			}
		}
		all := slices.Collect(maps.Values(w.all))
		for _, d := range Decide(all, w.rules) {
			if d.Reason == Start {
				t.Fatalf("seed %d: %s waits and need not", seed, d.Key.Name)
			}
		}
	}
}
