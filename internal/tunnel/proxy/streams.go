package proxy

import (
	"context"
	"runtime/debug"
	"sync"
	"time"
)

// streams are those that run, and places for those that are being made.
type streams struct {
	limit int

	mu      sync.Mutex
	places  int
	closed  bool
	running map[*stream]bool
	// empty is closed when there is none left after close.
	empty chan struct{}

	// idle is how long a stream may carry nothing; 0 is for ever. janitor looks from time to time
	// while there are streams.
	idle    time.Duration
	janitor *time.Timer

	// What a rush of new streams has left behind, most of it handshakes, is given back when the rush
	// is over: those that stay may do nothing for long, and nothing else would collect it.
	rush int
	tidy *time.Timer
}

const (
	// rushStreams are a rush, which is over when there was no other stream for rushPause.
	rushStreams = 100
	rushPause   = time.Second
)

func newStreams(limit int, idle time.Duration) *streams {
	return &streams{limit: limit, idle: idle, running: map[*stream]bool{}, empty: make(chan struct{})}
}

// reserve takes a place for a stream that is about to be made, and tells whether there was one.
func (s *streams) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.places >= s.limit {
		return false
	}
	s.places++
	if s.rush++; s.rush >= rushStreams {
		if s.tidy == nil {
			s.tidy = time.AfterFunc(rushPause, s.giveBack)
		} else {
			s.tidy.Reset(rushPause)
		}
	}
	return true
}

// giveBack returns memory to the system after a rush.
func (s *streams) giveBack() {
	s.mu.Lock()
	s.rush = 0
	s.mu.Unlock()
	debug.FreeOSMemory()
}

// release gives a place back.
func (s *streams) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places--
	s.look()
}

// run runs a stream that has a place, and gives the place back when it has ended. The result is
// that of the stream.
func (s *streams) run(one *stream) bool {
	s.mu.Lock()
	s.running[one] = true
	if s.idle > 0 {
		one.since = time.Now()
		if s.janitor == nil {
			s.janitor = time.AfterFunc(s.idle/idleLooks, s.cutIdle)
		}
	}
	s.mu.Unlock()
	free := one.run()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, one)
	s.places--
	s.look()
	return free
}

// idleLooks is how often it is looked for idle streams while one may be idle: so much too late the
// last of them is cut.
const idleLooks = 4

// cutIdle cuts the streams that have carried nothing for too long.
func (s *streams) cutIdle() {
	now := time.Now()
	var idle []*stream
	s.mu.Lock()
	for one := range s.running {
		if carried := one.carried.Load(); carried != one.seen {
			one.seen, one.since = carried, now
		} else if now.Sub(one.since) >= s.idle {
			idle = append(idle, one)
		}
	}
	s.janitor = nil
	if len(s.running) > 0 {
		s.janitor = time.AfterFunc(s.idle/idleLooks, s.cutIdle)
	}
	s.mu.Unlock()
	for _, one := range idle {
		one.abort()
	}
}

func (s *streams) look() {
	if s.closed && s.places == 0 {
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
}

// close lets no new streams in.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.tidy != nil {
		s.tidy.Stop()
	}
	s.look()
}

// drain waits until no stream is left, or the context ends; then it cuts those that are, and
// tells how many.
func (s *streams) drain(ctx context.Context) (cut int) {
	s.close()
	select {
	case <-s.empty:
		return 0
	case <-ctx.Done():
	}
	s.mu.Lock()
	all := make([]*stream, 0, len(s.running))
	for one := range s.running {
		all = append(all, one)
	}
	s.mu.Unlock()
	for _, one := range all {
		one.abort()
	}
	return len(all)
}
