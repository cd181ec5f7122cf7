package proxy

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
)

// tunnel is a tunnel of a client proxy.
type tunnel struct {
	id       uint32
	request  *control.TunnelRequest
	spec     *control.TunnelSpec
	listener *net.TCPListener
	// waiting has a slot for each stream that may wait for its server.
	waiting chan struct{}
	closed  chan struct{}

	traffic
	// active counts running streams, and opening counts streams that wait for their server; slots is the sum of both.
	active, opening, slots atomic.Int64
}

// begin makes a waiting stream a running one. It increments active before it decrements opening, so that the stream
// always counts in one of them and isIdle does not miss it.
func (t *tunnel) begin() {
	t.active.Add(1)
	t.opening.Add(-1)
	t.streams.Add(1)
}

// end is called when a stream that ran has ended.
func (t *tunnel) end() {
	t.active.Add(-1)
	t.slots.Add(-1)
}

// isIdle reports whether a tunnel that accepts no more clients has no stream. It reads opening first: a stream that begins
// to run between both reads is counted in active.
func (t *tunnel) isIdle() bool { return t.opening.Load() == 0 && t.active.Load() == 0 }

// reasons is how many reasons for the failure of a stream there are.
const reasons = int(control.StreamError_STREAM_ERROR_CANCELLED) + 1

// traffic has the counters of a tunnel.
type traffic struct {
	toServer, toClient atomic.Uint64 // bytes

	streams  atomic.Uint64
	failures [reasons]atomic.Uint64

	mu          sync.Mutex
	lastFailure string
	lastTime    time.Time
}

// fail counts a stream that could not be made.
func (t *traffic) fail(reason control.StreamError, message string, now time.Time) {
	if int(reason) < 0 || int(reason) >= len(t.failures) {
		reason = control.StreamError_STREAM_ERROR_UNSPECIFIED
	}
	t.failures[reason].Add(1)
	t.mu.Lock()
	t.lastFailure, t.lastTime = message, now
	t.mu.Unlock()
}

// proto returns the counts.
func (t *traffic) proto() *control.Traffic {
	p := &control.Traffic{
		Streams:       t.streams.Load(),
		BytesToServer: t.toServer.Load(),
		BytesToClient: t.toClient.Load(),
	}
	for reason := range t.failures {
		if count := t.failures[reason].Load(); count > 0 {
			p.Failures = append(p.Failures, &control.FailureCount{Error: control.StreamError(reason), Count: count})
		}
	}
	return p
}

// state returns the report of a tunnel for ListTunnels.
func (t *tunnel) state() *control.TunnelState {
	s := &control.TunnelState{
		Spec:           t.spec,
		Traffic:        t.proto(),
		ActiveStreams:  uint64(t.active.Load()),
		OpeningStreams: uint64(t.opening.Load()),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.LastFailure = t.lastFailure; s.LastFailure != "" {
		s.LastFailureTime = t.lastTime.Unix()
	}
	return s
}

// tunnels are the tunnels of a client proxy.
type tunnels struct {
	limit int

	mu     sync.Mutex
	closed bool
	last   uint32
	byID   map[uint32]*tunnel
	byName map[string]*tunnel
	// gone are deleted tunnels with streams that still run or wait. past has the counters of all other deleted ones.
	gone map[*tunnel]bool
	past *control.Traffic
}

// live returns the tunnels, sorted by ID.
// Like deleted, it is called with the lock held.
func (s *tunnels) live() []*tunnel {
	return slices.SortedFunc(maps.Values(s.byID), func(a, b *tunnel) int { return cmp.Compare(a.id, b.id) })
}

// removeAll removes all tunnels and returns them. closed: no other one is accepted.
func (s *tunnels) removeAll(closed bool) []*tunnel {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || closed
	all := s.live()
	clear(s.byID)
	clear(s.byName)
	for _, t := range all {
		s.gone[t] = true
	}
	return all
}

// deleted returns the counters of all deleted tunnels. A deleted tunnel moves from gone to past when its last stream has ended.
// So the sum never falls, which a counter of Prometheus must not.
func (s *tunnels) deleted() *control.Traffic {
	sum := add(&control.Traffic{}, s.past)
	for t := range s.gone {
		if t.isIdle() {
			add(s.past, t.proto())
			delete(s.gone, t)
		}
		add(sum, t.proto())
	}
	return sum
}

// add adds counters.
func add(to, added *control.Traffic) *control.Traffic {
	to.Streams += added.GetStreams()
	to.BytesToServer += added.GetBytesToServer()
	to.BytesToClient += added.GetBytesToClient()
next:
	for _, m := range added.GetFailures() {
		for _, f := range to.GetFailures() {
			if f.GetError() == m.GetError() {
				f.Count += m.GetCount()
				continue next
			}
		}
		to.Failures = append(to.Failures, &control.FailureCount{Error: m.GetError(), Count: m.GetCount()})
	}
	return to
}
