package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestUnusedMemoryIsWhatAReturnFrees(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	debug.FreeOSMemory()
	before := read()
	for range 2 * threshold >> 20 {
		garbage := make([]byte, 1<<20)
		runtime.KeepAlive(&garbage)
	}
	after := read()
	if got := after.unused - before.unused; got < threshold {
		t.Errorf("%d bytes of garbage count as %d unused", 2*threshold, got)
	}
	if got := after.allocated - before.allocated; got < 2*threshold {
		t.Errorf("%d bytes count as %d allocated", 2*threshold, got)
	}
	debug.FreeOSMemory()
	if got := read().unused; got >= threshold {
		t.Errorf("%d bytes are unused after they were returned: they would be returned again and again", got)
	}
}

func TestMemoryIsReturnedAfterABurstAndNotDuringIt(t *testing.T) {
	const before = 1 << 40
	for name, c := range map[string]struct {
		unused    int64
		allocated uint64
		want      bool
	}{
		"little to return":                    {threshold - 1, 0, false},
		"left alone":                          {threshold, 0, true},
		"after a start":                       {200 << 20, 90 << 20, true},
		"in a burst":                          {200 << 20, 110 << 20, false},
		"a little work, and little to return": {threshold, threshold, false},
	} {
		now := usage{unused: c.unused, allocated: before + c.allocated}
		if got := now.idleSince(usage{allocated: before}); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestGrowthFollowsEachCollection(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	Releaser{GCPercent: 50}.letGrow(ctx)
	alive := make([]byte, 2*smallHeap)
	for range 3 { // the cleanups run concurrently
		runtime.GC()
	}
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for deadline := time.Now().Add(time.Minute); percent[0].Value.Kind() == metrics.KindBad || percent[0].Value.Uint64() != 50; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("with %d MiB alive the heap may grow by %d percent", len(alive)>>20, percent[0].Value.Uint64())
		}
		metrics.Read(percent)
	}
	runtime.KeepAlive(&alive)
}

func TestASmallHeapMayGrowToItsLimit(t *testing.T) {
	for name, c := range map[string]struct {
		live int64
		want int
	}{
		"nothing known": {0, 5500},
		"a few":         {8 << 20, 600},
		"a thousand":    {32 << 20, 75},
		"more":          {38 << 20, 50},
		"ten thousand":  {160 << 20, 50},
	} {
		if got := (usage{live: c.live}).growth(50); got != c.want {
			t.Errorf("%s: the heap may grow by %d percent, want %d", name, got, c.want)
		}
	}
}
