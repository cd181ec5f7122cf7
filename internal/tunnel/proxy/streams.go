package proxy

import (
	"context"
	"runtime/debug"
	"sync"
	"time"
)

// streams holds the running streams, and slots for streams that are being made. A slot is taken before anything is dialled and
// counts until the end of the stream, so a proxy never has more connections than its limit allows.
type streams struct {
	limit int

	mu      sync.Mutex
	slots   int
	closed  bool
	running map[*stream]bool
	// empty is closed when no stream is left after close.
	empty chan struct{}

	// idle is how long a stream may carry no bytes; 0 is unlimited. reaper cuts idle streams.
	idle   time.Duration
	reaper *time.Timer

	// After a burst of new streams, its memory, most of it for handshakes, is returned to the system. If the streams
	// then stay idle, no garbage collection would run.
	burst int
	free  *time.Timer
}

const (
	// burstSize streams are a burst, which is over after burstInterval without a new stream.
	burstSize     = 100
	burstInterval = time.Second
)

func newStreams(limit int, idle time.Duration) *streams {
	return &streams{limit: limit, idle: idle, running: map[*stream]bool{}, empty: make(chan struct{})}
}

// reserve takes a slot for a stream that is being made, and reports whether one was free.
func (s *streams) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.slots >= s.limit {
		return false
	}
	s.slots++
	if s.burst++; s.burst >= burstSize {
		if s.free == nil {
			s.free = time.AfterFunc(burstInterval, s.freeMemory)
		} else {
			s.free.Reset(burstInterval)
		}
	}
	return true
}

// freeMemory returns memory to the system after a burst.
func (s *streams) freeMemory() {
	s.mu.Lock()
	s.burst = 0
	s.mu.Unlock()
	debug.FreeOSMemory()
}

// release frees a slot.
func (s *streams) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots--
	s.signalEmpty()
}

// run runs a stream that has a slot, and frees the slot when the stream has ended. It returns the result of
// the stream.
func (s *streams) run(current *stream) outcome {
	s.mu.Lock()
	s.running[current] = true
	if s.idle > 0 {
		current.since = time.Now()
		// The reaper runs only while there are streams: the first one starts it.
		if s.reaper == nil {
			s.reaper = time.AfterFunc(s.idle/idleChecks, s.cutIdle)
		}
	}
	s.mu.Unlock()
	result := current.run()
	// The slot is freed only after the stream has left running, so that a drain that sees no slots has no stream to
	// cut.
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, current)
	s.slots--
	s.signalEmpty()
	return result
}

// idleChecks is the number of checks during one idle timeout. A stream is cut up to a quarter of the timeout too late.
const idleChecks = 4

// cutIdle cuts the streams that have carried no bytes for too long.
func (s *streams) cutIdle() {
	now := time.Now()
	var idle []*stream
	s.mu.Lock()
	for idleStream := range s.running {
		if carried := idleStream.carried.Load(); carried != idleStream.seen {
			idleStream.seen, idleStream.since = carried, now
		} else if now.Sub(idleStream.since) >= s.idle {
			idle = append(idle, idleStream)
		}
	}
	s.reaper = nil
	if len(s.running) > 0 {
		s.reaper = time.AfterFunc(s.idle/idleChecks, s.cutIdle)
	}
	s.mu.Unlock()
	// Outside of the lock: each abort ends a run, which takes the lock to free its slot.
	for _, idleStream := range idle {
		idleStream.abort()
	}
}

// signalEmpty needs the lock of its caller.
func (s *streams) signalEmpty() {
	if s.closed && s.slots == 0 {
		// close and the end of the last stream may both come here.
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
}

// close accepts no more streams.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.free != nil {
		s.free.Stop()
	}
	s.signalEmpty()
}

// drain waits until no stream is left or the context ends. Then it cuts the streams that are left, and returns how many.
func (s *streams) drain(ctx context.Context) (cut int) {
	s.close()
	select {
	case <-s.empty:
		return 0
	case <-ctx.Done():
	}
	return s.cutAll()
}

// cutAll cuts the streams that run, and returns how many.
func (s *streams) cutAll() (cut int) {
	s.mu.Lock()
	all := make([]*stream, 0, len(s.running))
	for running := range s.running {
		all = append(all, running)
	}
	s.mu.Unlock()
	for _, running := range all {
		running.abort()
	}
	return len(all)
}
