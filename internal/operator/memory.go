package operator

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryPause is the time between two looks at the memory.
	memoryInterval = 10 * time.Second
	// memoryWorth is how much that nobody uses, in bytes, is worth a collection of garbage.
	memoryThreshold = 16 << 20
	// smallHeap is what the heap may grow to in any case before garbage is collected. With
	// few instances a rush is all garbage: to collect it each time that it comes to half of
	// what is alive takes a sixth of the operator's processor time.
	smallHeap = 56 << 20
)

// memoryKeeper suits the collection of garbage to the work.
//
// It gives memory back when a start or a rush is over. The runtime by itself keeps as much
// as the heap may grow to until the next collection, although it hardly grows where
// instances are left alone. And it has garbage collected less often while the heap is small.
type memoryReleaser struct {
	// gcPercent is how much the heap may grow between two collections when it is not small,
	// in percent; zero leaves alone what is set.
	gcPercent int
}

// NeedLeaderElection is false: the other replica holds the same caches.
func (memoryReleaser) NeedLeaderElection() bool { return false }

// Start returns when ctx ends.
func (k memoryReleaser) Start(ctx context.Context) error {
	if k.gcPercent != 0 {
		k.letGrow(ctx)
	}
	ticker := time.NewTicker(memoryInterval)
	defer ticker.Stop()
	before := readMemory()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			now := readMemory()
			if now.idleSince(before) {
				debug.FreeOSMemory()
			}
			before = now
		}
	}
}

// letGrow sets how much the heap may grow, now and after each collection: what is alive
// doubles within seconds when a rush begins.
func (k memoryReleaser) letGrow(ctx context.Context) {
	debug.SetGCPercent(readMemory().growth(k.gcPercent))
	if ctx.Err() == nil {
		// Nobody holds this: the next collection finds it.
		runtime.AddCleanup(&struct{ _ [64]byte }{}, k.letGrow, ctx)
	}
}

// memory is what the heap has, in bytes.
type memory struct {
	// unused is what holds nothing, and what has been allocated since the last
	// collection, most of which is garbage by now.
	unused int64
	// live is what the last collection has left.
	live int64
	// allocated is the sum of all allocations up to now.
	allocated uint64
}

// growth returns by how many percent the heap may grow until the next collection, at least
// a number of them.
func (m memory) growth(least int) int {
	live := max(m.live, 1<<20)
	return max(least, int((smallHeap-live)*100/live))
}

// idleSince reports whether there is something to give back. In a rush there is not: half
// of it would be used again before the next look.
func (m memory) idleSince(before memory) bool {
	return m.unused >= memoryThreshold && int64(m.allocated-before.allocated) < m.unused/2
}

func readMemory() memory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	free, objects, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return memory{
		unused:    int64(free) + max(0, int64(objects)-int64(live)),
		live:      int64(live),
		allocated: samples[3].Value.Uint64(),
	}
}
