package operator

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryPause is the time between two looks at memory that nobody uses.
	memoryPause = time.Minute
	// memoryWorth is how much of it, in bytes, is worth a collection of garbage.
	memoryWorth = 16 << 20
)

// memoryReturner gives memory back after a start or a rush. The runtime by itself keeps
// as much as the heap may grow to until the next collection, although it hardly grows where
// instances are left alone.
type memoryReturner struct{}

// NeedLeaderElection is false: the other replica holds the same caches.
func (memoryReturner) NeedLeaderElection() bool { return false }

// Start returns when ctx ends.
func (memoryReturner) Start(ctx context.Context) error {
	ticker := time.NewTicker(memoryPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if unusedMemory() >= memoryWorth {
				debug.FreeOSMemory()
			}
		}
	}
}

// unusedMemory is what the heap has and holds nothing in, and what has been allocated
// since the last collection, most of which is garbage by now.
func unusedMemory() int64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	free, objects, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return int64(free) + max(0, int64(objects)-int64(live))
}
