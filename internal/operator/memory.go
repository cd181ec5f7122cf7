package operator

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryInterval is the time between two checks of the memory.
	memoryInterval = 10 * time.Second
	// memoryThreshold is how much unused memory, in bytes, makes a garbage collection worthwhile.
	memoryThreshold = 16 << 20
	// smallHeap is the size up to which the heap may always grow before garbage is collected.
	// With few instances nearly everything that a burst allocates is garbage. Collecting it
	// each time that it reaches half of the live heap takes a sixth of the operator's CPU time.
	smallHeap = 56 << 20
)

// memoryReleaser adapts garbage collection to the load.
//
// It returns memory to the system after a start or a burst: with 10,000 instances that are
// left alone the operator then takes 240 MiB instead of 309 (docs/capacity.md). The runtime
// itself keeps as much as the heap may grow to until the next collection, and nearly nothing
// is allocated then. GOGC and GOMEMLIMIT cannot express that: a limit low enough for few
// instances makes the runtime collect all the time with many. It also makes collections less
// frequent while the heap is small.
type memoryReleaser struct {
	// gcPercent is how much the heap may grow between two collections if it is not small,
	// in percent; zero keeps the current setting.
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

// letGrow sets how much the heap may grow, now and after each collection: the live heap
// doubles within seconds when a burst begins.
func (k memoryReleaser) letGrow(ctx context.Context) {
	debug.SetGCPercent(readMemory().growth(k.gcPercent))
	if ctx.Err() == nil {
		// Without a reference, the next collection runs the cleanup.
		runtime.AddCleanup(&struct{ _ [64]byte }{}, k.letGrow, ctx)
	}
}

// memory is the state of the heap, in bytes.
type memory struct {
	// unused is the free part of the heap, plus all allocations since the last collection, most of
	// which are garbage by now.
	unused int64
	// live is the size after the last collection.
	live int64
	// allocated is the sum of all allocations so far.
	allocated uint64
}

// growth returns by how many percent the heap may grow until the next collection, at least
// least.
func (m memory) growth(least int) int {
	live := max(m.live, 1<<20)
	return max(least, int((smallHeap-live)*100/live))
}

// idleSince reports whether memory should be returned. In a burst it should not: half of the memory
// would be used again before the next check.
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
