// Package memory adapts garbage collection to the load of a program.
package memory

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// interval is the time between two checks of the memory.
	interval = 10 * time.Second
	// threshold is how much unused memory, in bytes, makes a garbage collection worthwhile.
	threshold = 16 << 20
	// smallHeap is the size up to which the heap may always grow before garbage is collected.
	// With few instances nearly everything that a burst or a request allocates is garbage. Collecting it
	// each time that it reaches half of the live heap takes a sixth of the CPU time.
	smallHeap = 56 << 20
)

// SetGCPercent sets how much the heap may grow between two collections, in percent, and returns what a Releaser needs. A GOGC in the
// environment stays, and the result is zero.
func SetGCPercent(percent int) int {
	if os.Getenv("GOGC") != "" {
		return 0
	}
	debug.SetGCPercent(percent)
	return percent
}

// Releaser adapts garbage collection to the load.
//
// It returns memory to the system after a start or a burst: with 10,000 instances that are
// left alone the operator then takes 240 MiB instead of 309 (docs/capacity.md). The runtime
// itself keeps as much as the heap may grow to until the next collection, and nearly nothing
// is allocated then. GOGC and GOMEMLIMIT cannot express that: a limit low enough for few
// instances makes the runtime collect all the time with many. It also makes collections less
// frequent while the heap is small.
type Releaser struct {
	// GCPercent is how much the heap may grow between two collections if it is not small,
	// in percent; zero keeps the current setting.
	GCPercent int
}

// NeedLeaderElection is false: the other replica holds the same caches.
func (Releaser) NeedLeaderElection() bool { return false }

// Start returns when ctx ends.
func (r Releaser) Start(ctx context.Context) error {
	if r.GCPercent != 0 {
		r.letGrow(ctx)
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	before := read()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			now := read()
			if now.idleSince(before) {
				debug.FreeOSMemory()
			}
			before = now
		}
	}
}

// letGrow sets how much the heap may grow, now and after each collection: the live heap
// doubles within seconds when a burst begins.
func (r Releaser) letGrow(ctx context.Context) {
	debug.SetGCPercent(read().growth(r.GCPercent))
	if ctx.Err() == nil {
		// Without a reference, the next collection runs the cleanup.
		runtime.AddCleanup(&struct{ _ [64]byte }{}, r.letGrow, ctx)
	}
}

// usage is the state of the heap, in bytes.
type usage struct {
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
func (m usage) growth(least int) int {
	live := max(m.live, 1<<20)
	return max(least, int((smallHeap-live)*100/live))
}

// idleSince reports whether memory should be returned. In a burst it should not: half of the memory
// would be used again before the next check.
func (m usage) idleSince(before usage) bool {
	return m.unused >= threshold && int64(m.allocated-before.allocated) < m.unused/2
}

func read() usage {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	free, objects, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return usage{
		unused:    int64(free) + max(0, int64(objects)-int64(live)),
		live:      int64(live),
		allocated: samples[3].Value.Uint64(),
	}
}
