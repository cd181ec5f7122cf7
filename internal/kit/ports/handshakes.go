package ports

import (
	"cmp"
	"container/list"
	"runtime"
	"sync/atomic"
)

// handshakes lets few TLS handshakes of a port compute their keys at a time. They take nearly all the CPU time that a client without
// proof costs. Its caller holds the lock.
//
// Clients of known addresses go first, so that they wait for one stranger at most, however many come.
type handshakes struct {
	limit     int
	computing int
	first     list.List // of *handshake that wait, of known addresses
	strangers list.List // of *handshake that wait
}

// handshake is the handshake of one connection.
type handshake struct {
	computes atomic.Bool
	// While it waits, it is an element of a list, and turn is closed at the end.
	turn    chan struct{}
	waiting *list.List
	element *list.Element
}

// newHandshakes leaves half of the CPUs to clients whose connection exists.
func newHandshakes() handshakes { return handshakes{limit: max(runtime.GOMAXPROCS(0)/2, 1)} }

// begin lets a handshake compute, or returns what is closed when it may, or when it has ended.
func (all *handshakes) begin(h *handshake, known bool) (turn <-chan struct{}) {
	if all.computing < all.limit {
		all.computing++
		h.computes.Store(true)
		return nil
	}
	h.turn, h.waiting = make(chan struct{}), &all.strangers
	if known {
		h.waiting = &all.first
	}
	h.element = h.waiting.PushBack(h)
	return h.turn
}

// end passes the turn of a handshake on, or ends its wait. It may be repeated.
func (all *handshakes) end(h *handshake) {
	if h.element != nil {
		h.leave()
		return
	}
	if !h.computes.CompareAndSwap(true, false) {
		return
	}
	next := cmp.Or(all.first.Front(), all.strangers.Front())
	if next == nil {
		all.computing--
		return
	}
	following := next.Value.(*handshake)
	following.computes.Store(true)
	following.leave()
}

// leave ends the wait.
func (h *handshake) leave() {
	h.waiting.Remove(h.element)
	h.element = nil
	close(h.turn)
}
