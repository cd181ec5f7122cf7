package admission

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// record is an instance as the API server stores it.
type record struct {
	Instance
	version int
	// from is the prepared instance that it took over.
	from types.UID
}

// claimsModel has the objects, and leaders that write by what their caches show. All of them write at the same time, which is worse
// than any change of leaders: the fence lets one alone write.
type claimsModel struct {
	t       *testing.T
	chance  *rand.Rand
	stored  map[types.UID]record
	caches  []map[types.UID]record
	created int
	// takers and namespaces never change.
	takers, namespaces map[types.UID]types.UID
}

// follow lets a cache catch up with some of the objects.
func (m *claimsModel) follow(cache map[types.UID]record) {
	for uid := range maps.Clone(cache) {
		if _, exists := m.stored[uid]; !exists && m.chance.IntN(2) == 0 {
			delete(cache, uid)
		}
	}
	for uid, r := range m.stored {
		if m.chance.IntN(2) == 0 {
			cache[uid] = r
		}
	}
}

// write stores an object if the cache has its present version, and reports whether the leader lives on.
func (m *claimsModel) write(cache map[types.UID]record, uid types.UID, change func(*record)) (stored, alive bool) {
	r, exists := m.stored[uid]
	if !exists || r.version != cache[uid].version {
		return false, true
	}
	change(&r)
	r.version++
	m.stored[uid] = r
	if m.chance.IntN(10) == 0 { // the process ends, and the next one has not seen its write
		return true, false
	}
	cache[uid] = r
	return true, true
}

// lead is one round of a leader.
func (m *claimsModel) lead(cache map[types.UID]record) {
	m.follow(cache)
	all := make([]Instance, 0, len(cache))
	for _, r := range cache {
		all = append(all, r.Instance)
	}
	for _, d := range Decide(all, Rules{Challenge: func(types.NamespacedName) Challenge { return Challenge{} }}) {
		if d.Reason != Start {
			continue
		}
		prepared := types.UID(d.TakesOver.Name)
		if prepared != "" && cache[prepared].ClaimedBy == "" {
			claimed, alive := m.write(cache, prepared, func(r *record) { r.ClaimedBy = d.UID })
			if !alive {
				return
			}
			if !claimed {
				continue
			}
		}
		if _, alive := m.write(cache, d.UID, func(r *record) { r.Started, r.Claimable, r.from = true, r.Prepared, prepared }); !alive {
			return
		}
	}
}

// handOver deletes prepared instances as soon as it is certain who has them: this reads the API server.
func (m *claimsModel) handOver() {
	for uid, r := range maps.Clone(m.stored) {
		if r.ClaimedBy == "" {
			continue
		}
		if taker, exists := m.stored[r.ClaimedBy]; !exists || taker.Started {
			delete(m.stored, uid)
		}
	}
}

// check compares with all that was seen before.
func (m *claimsModel) check() {
	for uid, r := range m.stored {
		if r.from == "" {
			continue
		}
		if before := m.takers[r.from]; before != "" && before != uid {
			m.t.Fatalf("%s has two players: %s and %s", r.from, before, uid)
		}
		if before := m.namespaces[uid]; before != "" && before != r.from {
			m.t.Fatalf("player %s has two instances: %s and %s", uid, before, r.from)
		}
		m.takers[r.from], m.namespaces[uid] = uid, r.from
	}
}

func (m *claimsModel) create(name string, prepared bool) {
	m.created++
	uid := types.UID(fmt.Sprintf("%s-%d", name, m.created))
	m.stored[uid] = record{version: 1, Instance: Instance{
		UID: uid, Key: types.NamespacedName{Name: string(uid)}, Owner: string(uid), Created: time.Unix(int64(m.created), 0), Prepared: prepared,
	}}
}

// Ten thousand players claim prepared instances, while processes end after any write, and several leaders write by caches that are late.
func TestClaimsGetNeitherLostNorDoubled(t *testing.T) {
	m := &claimsModel{
		t: t, chance: rand.New(rand.NewPCG(1, 2)), stored: map[types.UID]record{}, caches: []map[types.UID]record{{}, {}, {}},
		takers: map[types.UID]types.UID{}, namespaces: map[types.UID]types.UID{},
	}
	for len(m.takers) < 10000 {
		for range m.chance.IntN(4) {
			m.create("player", false)
			m.create("warm", true)
		}
		for _, cache := range m.caches {
			m.lead(cache)
			m.check()
		}
		m.handOver()
		for uid, r := range maps.Clone(m.stored) { // players leave, or give up before they start
			if !r.Prepared && m.chance.IntN(8) == 0 && (r.Started || m.chance.IntN(8) == 0) {
				delete(m.stored, uid)
			}
		}
	}
	for range 1000 { // all becomes quiet: nothing is left of a claim
		for _, cache := range m.caches {
			m.lead(cache)
			m.check()
		}
		m.handOver()
	}
	for _, r := range m.stored {
		if r.ClaimedBy != "" || !r.Started {
			t.Errorf("it waits for good: %+v", r)
		}
	}
}
