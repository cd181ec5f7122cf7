package queue

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

// entry is the instance that was created so many seconds after noon, of a Challenge.
func entry(second int, challenge string) Entry {
	uid := fmt.Sprintf("%04d", second)
	return Entry{
		UID: types.UID(uid), Key: types.NamespacedName{Namespace: "event", Name: "i" + uid},
		Challenge: types.NamespacedName{Namespace: "event", Name: challenge}, Created: noon.Add(time.Duration(second) * time.Second),
	}
}

func live(e Entry) Sight { return Sight{Entry: e, Live: true} }

func see(q *Queue, all ...Entry) {
	for _, e := range all {
		q.See(live(e))
	}
}

func name(e Entry) string { return e.Key.Name }

func names(keys []types.NamespacedName) []string {
	var all []string
	for _, k := range keys {
		all = append(all, k.Name)
	}
	slices.Sort(all)
	return all
}

func wantCalled(t *testing.T, called []types.NamespacedName, want ...Entry) {
	t.Helper()
	var expected []string
	for _, e := range want {
		expected = append(expected, name(e))
	}
	if got := names(called); !slices.Equal(got, expected) {
		t.Errorf("called are %v, want %v", got, expected)
	}
}

func wantGo(t *testing.T, q *Queue, e Entry, want bool) Answer {
	t.Helper()
	a := q.Ask(e)
	if a.Unseen || a.Go != want {
		t.Errorf("%s: %+v, want Go %t", name(e), a, want)
	}
	return a
}

func TestWhoIsOlderGoesFirstWhoeverAsksFirst(t *testing.T) {
	q := New(2)
	a, b, c, d := entry(1, "web"), entry(2, "web"), entry(3, "pwn"), entry(4, "web")
	see(q, d, c, b, a)
	wantGo(t, q, d, false)
	wantGo(t, q, c, false)
	wantGo(t, q, b, true)
	wantGo(t, q, b, true) // again: what was promised stays
	wantGo(t, q, a, true)
	wantCalled(t, q.Gone(a.UID), c, d) // d, to be told that it is the head of its Challenge's
	wantGo(t, q, d, false)
	wantGo(t, q, c, true)
	wantCalled(t, q.Gone(b.UID), d)
	wantGo(t, q, d, true)
}

func TestTiesAreBrokenByUIDAndNotByName(t *testing.T) {
	q := New(1)
	a, b := entry(1, "web"), entry(2, "web")
	b.Created = a.Created
	a.Key.Name = "z"
	see(q, a, b)
	wantGo(t, q, b, false)
	wantGo(t, q, a, true)
}

func TestWhatCannotBeBuiltKeepsNobodyWaiting(t *testing.T) {
	q := New(1)
	a, b := entry(1, "broken"), entry(2, "web")
	see(q, a, b)
	wantGo(t, q, b, false)
	wantCalled(t, q.Aside(a.UID), b)
	wantGo(t, q, b, true)

	// When it is possible it has its place again.
	c := entry(3, "web")
	see(q, c)
	wantGo(t, q, c, false)
	wantCalled(t, q.Reopen(a.Challenge), a)
	wantCalled(t, q.Gone(b.UID))
	wantGo(t, q, c, false)
	wantGo(t, q, a, true)
}

func TestAChallengeThatIsFullKeepsNoOtherWaiting(t *testing.T) {
	q := New(3)
	q.Limit(entry(1, "web").Challenge, Bound{Created: noon, Generation: 1, Limit: 1})
	a, b, c, d, e := entry(1, "web"), entry(2, "web"), entry(3, "pwn"), entry(4, "pwn"), entry(5, "pwn")
	see(q, a, b, c, d, e)
	wantGo(t, q, a, true)
	wantGo(t, q, b, false)
	wantGo(t, q, e, false)
	wantGo(t, q, d, true)
	wantGo(t, q, c, true)
	// The room that is free is of no use to the older one.
	wantCalled(t, q.Gone(c.UID), e)
	wantGo(t, q, e, true)
	wantCalled(t, q.Gone(d.UID))
	wantCalled(t, q.Limit(b.Challenge, Bound{Created: noon, Generation: 2, Limit: 2}), b)
	// An older version of the Challenge comes late.
	wantCalled(t, q.Limit(b.Challenge, Bound{Created: noon, Generation: 1, Limit: 1}))
	wantGo(t, q, b, true)
	// The Challenge is deleted.
	f := entry(6, "web")
	see(q, f)
	wantGo(t, q, f, false)
	q.Gone(e.UID)
	wantCalled(t, q.Limit(b.Challenge, Bound{}), f)
}

func TestRoomIsTakenUntilItsHolderIsGone(t *testing.T) {
	q := New(1)
	a, b := entry(1, "web"), entry(2, "web")
	see(q, a, b)
	wantGo(t, q, a, true)
	wantGo(t, q, b, false)
	q.See(Sight{Entry: a, Live: true, Holds: false}) // the cache does not show the start yet
	q.See(Sight{Entry: a, Live: true, Holds: true})
	wantCalled(t, q.See(Sight{Entry: a, Holds: true})) // it is being deleted
	wantGo(t, q, b, false)
	wantCalled(t, q.Gone(a.UID), b)
}

func TestWhatEndsWhileItWaitsLeavesAtOnce(t *testing.T) {
	q := New(1)
	a, b, c := entry(1, "web"), entry(2, "web"), entry(3, "web")
	see(q, a, b, c)
	wantGo(t, q, a, true)
	if !wantGo(t, q, b, false).Head {
		t.Error("the head is not told")
	}
	if wantGo(t, q, b, false).Head {
		t.Error("the head is told twice")
	}
	wantGo(t, q, c, false)
	wantCalled(t, q.See(Sight{Entry: b}), c) // to be told that it is the head
	if !wantGo(t, q, c, false).Head {
		t.Error("the next head is not told")
	}
	if got := q.Waiting()[c.Challenge]; got != (Waiting{Number: 1, Oldest: c.Created}) {
		t.Errorf("%+v waits", got)
	}
	// It takes back that it is to end.
	see(q, b)
	q.Gone(a.UID)
	wantGo(t, q, c, false)
	wantGo(t, q, b, true)
}

func TestAStartThatFailedGivesTheRoomBack(t *testing.T) {
	q := New(1)
	a, b := entry(1, "web"), entry(2, "web")
	see(q, a, b)
	wantGo(t, q, a, true)
	wantGo(t, q, b, false)
	wantCalled(t, q.Release(a.UID))
	wantGo(t, q, b, false) // the older one comes again
	wantGo(t, q, a, true)
	q.See(Sight{Entry: a}) // it was deleted meanwhile, and somebody's finalizer holds it
	wantCalled(t, q.Release(a.UID), b)
	wantGo(t, q, b, true)
}

func TestNobodyGoesBeforeEventsHaveToldOfIt(t *testing.T) {
	q := New(1)
	a, b := entry(1, "web"), entry(2, "web")
	if !q.Ask(b).Unseen {
		t.Error("the event is not waited for")
	}
	q.Aside(a.UID)
	wantCalled(t, q.See(live(a)))
	wantCalled(t, q.See(live(b)), b)
	wantGo(t, q, b, true)
}

func TestWhatThePredecessorStartedHoldsRoom(t *testing.T) {
	q := New(1)
	a, b, c := entry(1, "web"), entry(2, "web"), entry(3, "web")
	see(q, b, c) // the cache shows neither that a exists nor that c was started
	q.Listing()
	q.Gone("gone meanwhile")
	q.Begin([]Sight{{Entry: a, Holds: true}, {Entry: c, Holds: true}, {Entry: b, Live: true}, {Entry: Entry{UID: "gone meanwhile"}, Holds: true}}, 10)
	wantGo(t, q, b, false)
	wantCalled(t, q.Gone(c.UID))
	q.See(Sight{Entry: a, Holds: true, Live: true, Version: 9})
	wantCalled(t, q.Gone(a.UID), b)
}

func TestWhatWasListedAndNeverSeenHoldsNoRoomForever(t *testing.T) {
	q := New(1)
	a, b := entry(1, "web"), entry(2, "web")
	see(q, b)
	q.Listing()
	q.Begin([]Sight{{Entry: a, Holds: true}}, 10)
	wantGo(t, q, b, false)
	c := entry(3, "web")
	wantCalled(t, q.See(Sight{Entry: c, Live: true, Version: 11}), b)
}

func TestChecksGiveWay(t *testing.T) {
	q := New(2)
	q.Limit(entry(1, "web").Challenge, Bound{Created: noon, Generation: 1, Limit: 1})
	check, a, b := entry(1, "pwn"), entry(2, "web"), entry(3, "web")
	check.GivesWay = true
	see(q, check, a, b)
	wantGo(t, q, a, true)
	wantGo(t, q, b, false)
	wantGo(t, q, check, false) // there is room, which the player cannot use
	wantCalled(t, q.See(Sight{Entry: b}), check)
	wantGo(t, q, check, true)
	c := entry(4, "pwn")
	see(q, c)
	wantGo(t, q, c, false) // it counts all the same
	wantCalled(t, q.Gone(check.UID), c)
}

func TestWithoutABoundNobodyWaits(t *testing.T) {
	q := New(0)
	for n := range 100 {
		e := entry(n, "web")
		see(q, e)
		wantGo(t, q, e, true)
	}
	unseen := entry(100, "web")
	q.Take(unseen)
	last := entry(101, "web")
	see(q, last)
	q.Limit(last.Challenge, Bound{Created: noon, Generation: 2, Limit: 101})
	wantGo(t, q, last, false) // what was started before counts
	wantCalled(t, q.Release(unseen.UID), last)
}

// world is the cluster, as far as instances hold something, and an operator that is told of it
// late and may be killed.
type world struct {
	t      *testing.T
	random *rand.Rand
	limit  int
	bounds map[string]int
	// all exist; started are those that hold something.
	all     map[types.UID]Entry
	started map[types.UID]bool
	// untold are events that the operator has not got yet.
	untold []func(*Queue) []types.NamespacedName
	// due are the requests to the operator.
	due map[types.UID]bool
	q   *Queue
	age int
	// looks counts them.
	looks int
}

func (w *world) tell(event func(*Queue) []types.NamespacedName) { w.untold = append(w.untold, event) }

func (w *world) create() {
	w.age++
	challenges := slices.Sorted(maps.Keys(w.bounds))
	e := entry(w.age, challenges[w.random.IntN(len(challenges))])
	w.all[e.UID] = e
	w.tell(func(q *Queue) []types.NamespacedName { return q.See(live(e)) })
	w.due[e.UID] = true
}

// end takes one away; that is told late.
func (w *world) end() {
	uids := slices.Sorted(maps.Keys(w.all))
	if len(uids) == 0 {
		return
	}
	uid := uids[w.random.IntN(len(uids))]
	delete(w.all, uid)
	delete(w.started, uid)
	w.tell(func(q *Queue) []types.NamespacedName { return q.Gone(uid) })
}

func (w *world) called(keys []types.NamespacedName) {
	for _, k := range keys {
		w.due[types.UID(k.Name[1:])] = true
	}
}

func (w *world) event() {
	if len(w.untold) > 0 {
		next := w.untold[0]
		w.untold = w.untold[1:]
		w.called(next(w.q))
	}
}

// pass is one look at an instance that was asked for.
func (w *world) pass() {
	due := slices.Sorted(maps.Keys(w.due))
	if len(due) == 0 {
		return
	}
	uid := due[w.random.IntN(len(due))]
	delete(w.due, uid)
	e, exists := w.all[uid]
	w.looks++
	if !exists || w.started[uid] || !w.q.Ask(e).Go {
		return
	}
	if w.random.IntN(20) == 0 { // somebody else wrote at the same time
		w.called(w.q.Release(uid))
		w.due[uid] = true
		return
	}
	w.start(e)
}

func (w *world) start(e Entry) {
	of := func(challenge string) (n int) {
		for uid := range w.started {
			if w.all[uid].Challenge.Name == challenge {
				n++
			}
		}
		return n
	}
	room := w.limit - len(w.started)
	if room <= 0 {
		w.t.Fatalf("%s is started though %d are", name(e), len(w.started))
	}
	own := e.Challenge.Name
	if w.bounds[own] > 0 && of(own) >= w.bounds[own] {
		w.t.Fatalf("%s is started though %d of %s are", name(e), of(own), own)
	}
	// Everybody older that waits finds room beside it.
	older := map[string]int{}
	for uid, o := range w.all {
		if !w.started[uid] && cmp.Or(o.Created.Compare(e.Created), cmp.Compare(o.UID, e.UID)) < 0 {
			older[o.Challenge.Name]++
		}
	}
	for challenge, n := range older {
		free := n
		if w.bounds[challenge] > 0 {
			free = min(n, w.bounds[challenge]-of(challenge))
		}
		if challenge == own && w.bounds[own] > 0 && n >= w.bounds[own]-of(own) {
			w.t.Fatalf("%s overtakes an older one of %s", name(e), own)
		}
		room -= free
	}
	if room <= 0 {
		w.t.Fatalf("%s overtakes an older one", name(e))
	}
	w.started[e.UID] = true
	s := Sight{Entry: e, Live: true, Holds: true}
	w.tell(func(q *Queue) []types.NamespacedName { return q.See(s) })
}

// kill has another operator take over. Its cache is behind; what the API server lists is not.
func (w *world) kill() {
	w.q = New(w.limit)
	for challenge, limit := range w.bounds {
		w.q.Limit(types.NamespacedName{Namespace: "event", Name: challenge}, Bound{Created: noon, Limit: limit})
	}
	w.due = map[types.UID]bool{}
	w.untold = nil
	var listed []Sight
	for _, uid := range slices.Sorted(maps.Keys(w.all)) {
		s := Sight{Entry: w.all[uid], Live: true, Holds: w.started[uid]}
		listed = append(listed, s)
		old := s
		old.Holds = s.Holds && w.random.IntN(2) == 0 // the start is seen later
		w.tell(func(q *Queue) []types.NamespacedName { return q.See(old) })
		w.due[uid] = true
	}
	for _, s := range listed {
		w.tell(func(q *Queue) []types.NamespacedName { return q.See(s) })
	}
	w.q.Listing()
	w.q.Begin(listed, 1)
}

func TestNeverTooManyNeverOvertakenAndNobodyForgotten(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 22))
		w := &world{
			t: t, random: random, limit: 1 + random.IntN(10), bounds: map[string]int{"web": 0, "pwn": 1 + random.IntN(4), "shop": random.IntN(3)},
			all: map[types.UID]Entry{}, started: map[types.UID]bool{},
		}
		w.kill()
		for range 800 {
			switch n := random.IntN(100); {
			case n < 15:
				w.create()
			case n < 22:
				w.end()
			case n < 60:
				w.event()
			case n < 99:
				w.pass()
			default:
				w.kill()
			}
		}
		// From now on nothing happens but what is under way.
		for len(w.untold) > 0 || len(w.due) > 0 {
			w.event()
			w.pass()
		}
		for _, e := range w.all {
			own := e.Challenge.Name
			if w.started[e.UID] || len(w.started) >= w.limit {
				continue
			}
			n := 0
			for uid := range w.started {
				if w.all[uid].Challenge.Name == own {
					n++
				}
			}
			if w.bounds[own] == 0 || n < w.bounds[own] {
				t.Fatalf("seed %d: %s waits for room that is there", seed, name(e))
			}
		}
	}
}

// Of hundreds that wait, those alone are looked at that have something new to do or to tell.
func TestWhoWaitsIsLeftAlone(t *testing.T) {
	const all, room = 1000, 100
	w := &world{
		t: t, random: rand.New(rand.NewPCG(1, 2)), limit: room, bounds: map[string]int{"web": 0, "pwn": 0},
		all: map[types.UID]Entry{}, started: map[types.UID]bool{},
	}
	w.kill()
	for range all {
		w.create()
	}
	for ended := 0; ended < all; {
		for len(w.untold) > 0 || len(w.due) > 0 {
			w.event()
			w.pass()
		}
		for uid := range w.started { // one ends
			delete(w.all, uid)
			delete(w.started, uid)
			w.tell(func(q *Queue) []types.NamespacedName { return q.Gone(uid) })
			ended++
			break
		}
	}
	if w.looks > 6*all {
		t.Errorf("%d looks at %d instances", w.looks, all)
	}
}
