package queue

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Entry is an instance as far as its place in the queue is concerned.
type Entry struct {
	UID types.UID
	// Key is by what it is called.
	Key types.NamespacedName
	// Challenge is that of the instance, which exists or not.
	Challenge types.NamespacedName
	Created   time.Time
	// GivesWay: no player waits for it. It starts while no player waits for anything.
	GivesWay bool
}

// Sight is an instance as the cluster shows it.
type Sight struct {
	Entry
	// Holds: it was started, so that there may be something of it.
	Holds bool
	// Live: it is to be built. What is being deleted and holds nothing does not wait.
	Live bool
	// Version is the resource version.
	Version uint64
}

// Answer is what an instance is told that asks whether it may start.
type Answer struct {
	// Go: it may, and holds room from now on.
	Go bool
	// Unseen: the cluster's events have not told of it yet, so neither of those before it.
	// It is called when they have.
	Unseen bool
	// Head: it is the first that waits of its Challenge. That is said once.
	Head bool
}

// Bound is how many instances of one Challenge may hold room.
type Bound struct {
	// Created and Generation are those of the Challenge that says so: what an older one, or an
	// older version, says is ignored.
	Created    time.Time
	Generation int64
	// Limit is zero when there is none.
	Limit int
}

type state int

const (
	waits state = iota
	aside       // it cannot be built, whatever room there is
	holds
)

type member struct {
	Entry
	state state
	// asleep: it was told to wait, and comes again when it is called.
	asleep bool
	// queued: it was told to wait at least once. told: that it is the head.
	queued, told bool
	// seen: an event has told of it. listed: Begin has, and no event yet.
	seen, listed bool
	// ends: the last event told that it is not to be built any more.
	ends bool
}

type line struct {
	bound Bound
	// waiting are in their order.
	waiting         []*member
	holding, asleep int
}

// room is how many more may start as far as the line's own bound is concerned.
func (l *line) room() int {
	if l.bound.Limit == 0 {
		return len(l.waiting)
	}
	return max(0, l.bound.Limit-l.holding)
}

// Queue is safe for concurrent use. Methods that return keys want those to be called: they may
// be admitted now, or have something new to tell.
type Queue struct {
	mu      sync.Mutex
	limit   int
	members map[types.UID]*member
	lines   map[types.NamespacedName]*line
	holding int
	asleep  int
	// players are those that wait and do not give way.
	players int
	// early are those that were looked at before an event told of them: whether they are to
	// be called then, and else whether they are set aside.
	early map[types.UID]bool
	// begun is the version of the list that Begin was given; zero when every event since has
	// been seen, or there was none.
	begun uint64
	// gone are those that went away while that list was read; nil when none is.
	gone map[types.UID]struct{}
}

// New returns a queue for at most limit instances at a time, any number if that is zero.
func New(limit int) *Queue {
	return &Queue{
		limit:   limit,
		members: map[types.UID]*member{},
		lines:   map[types.NamespacedName]*line{},
		early:   map[types.UID]bool{},
	}
}

// before is the order of the queue, the same on every replica. Nobody overtakes by the name
// that is given to an instance.
func before(a, b *member) int {
	if a.GivesWay != b.GivesWay {
		if b.GivesWay {
			return -1
		}
		return 1
	}
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
}

// See notes an instance as an event shows it.
func (q *Queue) See(s Sight) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.begun != 0 && s.Version > q.begun {
		q.dropListed()
	}
	var called []types.NamespacedName
	m := q.members[s.UID]
	call, wasEarly := q.early[s.UID]
	delete(q.early, s.UID)
	switch {
	case m == nil && !s.Holds && !s.Live:
		return nil
	case m == nil:
		m = &member{Entry: s.Entry, seen: true}
		if wasEarly && !call {
			m.state = aside
		}
		q.join(m)
	case m.Entry != s.Entry:
		q.leave(m)
		m.Entry = s.Entry
		q.join(m)
		called = append(called, m.Key)
	}
	m.seen, m.listed, m.ends = true, false, !s.Live
	if wasEarly && call {
		called = append(called, m.Key)
	}
	switch {
	case s.Holds:
		q.move(m, holds)
	case !s.Live && m.state != holds:
		q.forget(m)
	}
	return append(called, q.call()...)
}

// Gone forgets an instance that does not exist anymore: the room that it held is free.
func (q *Queue) Gone(uid types.UID) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.early, uid)
	if q.gone != nil {
		q.gone[uid] = struct{}{}
	}
	m := q.members[uid]
	if m == nil {
		return nil
	}
	q.forget(m)
	return q.call()
}

// Ask is for an instance that can be built: may it start?
func (q *Queue) Ask(e Entry) Answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.members[e.UID]
	if m == nil || !m.seen {
		q.early[e.UID] = true
		return Answer{Unseen: true}
	}
	if m.state == holds {
		return Answer{Go: true}
	}
	q.move(m, waits)
	if q.admits(m) {
		q.move(m, holds)
		return Answer{Go: true}
	}
	m.queued = true
	q.sleep(m, true)
	head := q.lines[m.Challenge].waiting[0] == m && !m.told
	m.told = m.told || head
	return Answer{Head: head}
}

// Take notes that an instance is started that nothing bounds: a bound may come.
func (q *Queue) Take(e Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.members[e.UID]
	if m == nil {
		m = &member{Entry: e, state: holds}
		q.join(m)
		return
	}
	q.move(m, holds)
}

// Release takes back that an instance may start, which has certainly not: it comes again.
func (q *Queue) Release(uid types.UID) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.members[uid]
	switch {
	case m == nil || m.state != holds:
		return nil
	case !m.seen, m.ends:
		q.forget(m)
	default:
		q.move(m, waits)
	}
	return q.call()
}

// Aside notes that an instance cannot be built, so that it keeps nobody waiting until it asks
// again or its Challenge changes.
func (q *Queue) Aside(uid types.UID) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.members[uid]
	switch {
	case m == nil:
		q.early[uid] = false
		return nil
	case m.state == holds:
		return nil // whether it was started is not known
	}
	q.move(m, aside)
	return q.call()
}

// Limit notes how many instances of a Challenge may hold room. The zero Bound is that of one
// that does not exist.
func (q *Queue) Limit(challenge types.NamespacedName, b Bound) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.line(challenge)
	if l.bound == b {
		q.tidy(challenge)
		return nil
	}
	late := cmp.Or(b.Created.Compare(l.bound.Created), cmp.Compare(b.Generation, l.bound.Generation)) < 0
	if late && b != (Bound{}) {
		return nil
	}
	l.bound = b
	q.tidy(challenge)
	return q.call()
}

// Reopen lets the instances of a Challenge that were set aside wait again, and calls them: they
// may be possible now, in their order.
func (q *Queue) Reopen(challenge types.NamespacedName) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	var called []types.NamespacedName
	for _, m := range q.members {
		if m.state == aside && m.Challenge == challenge {
			q.move(m, waits)
			called = append(called, m.Key)
		}
	}
	return called
}

// Listing is to be called before the list for Begin is read.
func (q *Queue) Listing() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone = map[types.UID]struct{}{}
}

// Begin notes what hold room by a list that the API server has made of all instances, in this
// version: events may not tell yet what another process did a moment ago.
func (q *Queue) Begin(all []Sight, version uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range all {
		_, gone := q.gone[s.UID]
		if gone || !s.Holds {
			continue
		}
		if m := q.members[s.UID]; m != nil {
			q.move(m, holds)
			continue
		}
		q.join(&member{Entry: s.Entry, state: holds, listed: true})
	}
	q.gone, q.begun = nil, version
}

// dropListed forgets what was listed and of which no event has told: events are past that list,
// so these were gone before the first one.
func (q *Queue) dropListed() {
	q.begun = 0
	for _, m := range q.members {
		if m.listed {
			q.forget(m)
		}
	}
}

// Waiting is how many instances of a Challenge were told to wait, and since when the oldest of
// them exists.
type Waiting struct {
	Number int
	Oldest time.Time
}

// Waiting returns who waits, by Challenge.
func (q *Queue) Waiting() map[types.NamespacedName]Waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := map[types.NamespacedName]Waiting{}
	for challenge, l := range q.lines {
		var w Waiting
		for _, m := range l.waiting {
			if !m.queued {
				continue
			}
			if w.Number++; w.Oldest.IsZero() || m.Created.Before(w.Oldest) {
				w.Oldest = m.Created
			}
		}
		if w.Number > 0 {
			all[challenge] = w
		}
	}
	return all
}

// admits reports whether one that waits may start: there is room for it and for all that come
// before it and can use that room.
func (q *Queue) admits(m *member) bool {
	if m.GivesWay && q.players > 0 {
		return false
	}
	own := q.lines[m.Challenge]
	if own.bound.Limit > 0 && own.ahead(m) >= own.room() {
		return false
	}
	if q.limit == 0 {
		return true
	}
	taken := q.holding
	for _, l := range q.lines {
		if taken >= q.limit {
			return false
		}
		if len(l.waiting) > 0 {
			taken += min(l.ahead(m), l.room())
		}
	}
	return taken < q.limit
}

// ahead is how many of a line come before m, which may be of another one.
func (l *line) ahead(m *member) int {
	at, _ := slices.BinarySearchFunc(l.waiting, m, before)
	return at
}

// call returns whom to look at now, and takes them for awake: those that may start, and those
// that have become the head of their line.
func (q *Queue) call() []types.NamespacedName {
	if q.asleep == 0 {
		return nil
	}
	var called []types.NamespacedName
	full := q.limit > 0 && q.holding >= q.limit
	for _, l := range q.lines {
		if l.asleep == 0 {
			continue
		}
		if head := l.waiting[0]; head.asleep && !head.told {
			q.sleep(head, false)
			called = append(called, head.Key)
		}
		if full {
			continue
		}
		for _, m := range l.waiting {
			if l.asleep == 0 || !q.admits(m) {
				break
			}
			if m.asleep {
				q.sleep(m, false)
				called = append(called, m.Key)
			}
		}
	}
	return called
}

func (q *Queue) sleep(m *member, asleep bool) {
	if m.asleep == asleep {
		return
	}
	change := 1
	if !asleep {
		change = -1
	}
	m.asleep = asleep
	q.asleep += change
	q.lines[m.Challenge].asleep += change
}

func (q *Queue) line(challenge types.NamespacedName) *line {
	l := q.lines[challenge]
	if l == nil {
		l = &line{}
		q.lines[challenge] = l
	}
	return l
}

// tidy forgets a line of which nothing is to be known.
func (q *Queue) tidy(challenge types.NamespacedName) {
	if l := q.lines[challenge]; l.bound == (Bound{}) && l.holding == 0 && len(l.waiting) == 0 {
		delete(q.lines, challenge)
	}
}

func (q *Queue) move(m *member, to state) {
	if m.state == to {
		return
	}
	q.leave(m)
	m.state = to
	q.join(m)
}

func (q *Queue) forget(m *member) {
	q.leave(m)
	delete(q.members, m.UID)
}

// join counts a member by its state.
func (q *Queue) join(m *member) {
	q.members[m.UID] = m
	switch m.state {
	case holds:
		q.holding++
		q.line(m.Challenge).holding++
	case waits:
		l := q.line(m.Challenge)
		l.waiting = slices.Insert(l.waiting, l.ahead(m), m)
		if !m.GivesWay {
			q.players++
		}
	}
}

// leave is the opposite of join.
func (q *Queue) leave(m *member) {
	switch m.state {
	case holds:
		q.holding--
		q.lines[m.Challenge].holding--
		q.tidy(m.Challenge)
	case waits:
		q.sleep(m, false)
		l := q.lines[m.Challenge]
		at := l.ahead(m)
		l.waiting = slices.Delete(l.waiting, at, at+1)
		if !m.GivesWay {
			q.players--
		}
		q.tidy(m.Challenge)
	}
}
