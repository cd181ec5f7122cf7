package admission

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// world is a cluster, and an operator whose cache is late, whose requests fail and which may be killed.
type world struct {
	t      *testing.T
	random *rand.Rand
	rules  Rules
	// all exist.
	all     map[types.UID]Instance
	version uint64
	age     int
	// versions are those of the instances as they are in all, and cached as they are in the cache.
	versions, cached map[types.UID]uint64
	// events are all that happened, and shown is how many of them the cache shows.
	events []func()
	shown  int
	cache  map[types.UID]Instance
	// blocked are the instances that cannot be built. Their Challenges say so, which another watch shows.
	blocked map[types.UID]bool
	// own is the version of the last write of this process, for which its lists wait, and observed that of the last event.
	own, observed uint64
	// synced: the cache shows all that the previous leader has written, and all starts without an answer.
	synced bool
}

func (w *world) write(i Instance) {
	w.version++
	version := w.version
	w.all[i.UID], w.versions[i.UID] = i, version
	w.events = append(w.events, func() { w.cache[i.UID], w.cached[i.UID], w.observed = i, version, version })
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
	w.blocked[i.UID] = w.random.IntN(10) == 0
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
			w.blocked[i.UID] = !w.blocked[i.UID]
			return
		}
		delete(w.all, i.UID)
		delete(w.versions, i.UID)
		w.events = append(w.events, func() {
			delete(w.cache, i.UID)
			delete(w.cached, i.UID)
		})
	default:
		i.Ending = true
		w.write(i)
	}
}

func (w *world) event() {
	if w.shown < len(w.events) {
		w.events[w.shown]()
		w.shown++
	}
}

// kill has another process take over. Its cache is behind; the list of the API server is not.
func (w *world) kill() {
	shown := len(w.events) - w.random.IntN(min(len(w.events), 12)+1)
	w.cache, w.cached, w.shown = map[types.UID]Instance{}, map[types.UID]uint64{}, 0
	for w.shown < shown {
		w.event()
	}
	w.own, w.observed, w.synced = 0, 0, false
}

// list waits until the cache shows the own writes. The API server is asked where the cache may lack other starts.
func (w *world) list() (all []Instance, versions map[types.UID]uint64) {
	for w.observed < w.own {
		w.event()
	}
	if w.synced {
		return slices.Collect(maps.Values(w.cache)), maps.Clone(w.cached)
	}
	w.synced = newest(w.cached) >= newest(w.versions)
	return slices.Collect(maps.Values(w.all)), maps.Clone(w.versions)
}

func newest(versions map[types.UID]uint64) (n uint64) {
	for _, v := range versions {
		n = max(n, v)
	}
	return n
}

// round is one decision with its writes.
func (w *world) round() (starts int) {
	all, seen := w.list()
	for n := range all {
		all[n].Blocked = w.blocked[all[n].UID]
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
		switch conflict := !exists || w.versions[d.UID] != seen[d.UID]; {
		case w.random.IntN(10) == 0:
			w.synced = false
			if !conflict && w.random.IntN(2) == 0 {
				w.start(live)
			}
		case !conflict:
			w.start(live)
			w.own = w.version
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
			blocked: map[types.UID]bool{}, versions: map[types.UID]uint64{}, cached: map[types.UID]uint64{},
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
			for w.shown < len(w.events) {
				w.event()
			}
			if w.round() > 0 {
				quiet = 0
			}
		}
		all := slices.Collect(maps.Values(w.all))
		for n := range all {
			all[n].Blocked = w.blocked[all[n].UID]
		}
		for _, d := range Decide(all, w.rules) {
			if d.Reason == Start {
				t.Fatalf("seed %d: %s waits and need not", seed, d.Key.Name)
			}
		}
	}
}

// The API server has started the first of two instances and sent no answer. Then its Challenge is deleted.
func TestAStartWithoutAnswerCounts(t *testing.T) {
	w := &world{
		t: t, random: rand.New(rand.NewPCG(1, 22)), rules: rules(Limits{All: 1}, nil), all: map[types.UID]Instance{}, cache: map[types.UID]Instance{},
		blocked: map[types.UID]bool{}, versions: map[types.UID]uint64{}, cached: map[types.UID]uint64{},
	}
	first, second := instance(1, "web"), instance(2, "web")
	w.write(first)
	w.write(second)
	w.event()
	w.event()
	w.start(first)
	w.blocked[first.UID] = true
	for range 20 {
		w.round() // fails if it starts the second one
	}
}
