package operator

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestUnusedMemoryIsWhatAReturnFrees(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	debug.FreeOSMemory()
	before := unusedMemory()
	for range 2 * memoryWorth >> 20 {
		garbage := make([]byte, 1<<20)
		runtime.KeepAlive(&garbage)
	}
	if got := unusedMemory() - before; got < memoryWorth {
		t.Errorf("%d bytes of garbage count as %d unused", 2*memoryWorth, got)
	}
	debug.FreeOSMemory()
	if got := unusedMemory(); got >= memoryWorth {
		t.Errorf("%d bytes are unused after they were returned: they would be returned again and again", got)
	}
}
