package proxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/proxy/dataconn"
)

// stream joins a plain connection, to a client or to a server, with a data connection. It copies bytes in both directions
// until each direction has ended. An end is passed on as an end, and a failure as a failure. It reads from one side only
// as fast as the other side accepts.
type stream struct {
	plain *net.TCPConn
	data  *dataconn.Conn
	// out counts the bytes from plain to data, and in the bytes from data to plain.
	out, in *atomic.Uint64

	once sync.Once
	cut  bool

	// From ended on, the peer may close the data connection or begin the next stream. Before, its end is a cut, which this
	// side must wait for while it is watching, when it reads nothing else.
	endMu           sync.Mutex
	ended, watching bool

	// carried counts the bytes of both directions. The idle timeout compares it with seen, its value at since. Both are
	// under the lock of the streams.
	carried atomic.Uint64
	seen    uint64
	since   time.Time
}

// run returns when both directions have ended and the plain connection is closed. Then the data connection can carry the
// next stream if the result is true, and must be discarded otherwise.
func (s *stream) run() bool {
	var outward sync.WaitGroup
	outward.Go(func() {
		err := s.data.CopyFrom(s.plain, s.counter(s.out), s.end)
		if err != nil {
			s.abort()
			s.end()
		}
	})
	if s.data.CopyTo(s.plain, s.counter(s.in)) != nil || s.isCut() {
		s.abort()
	}
	outward.Wait()
	_ = s.plain.Close()
	s.once.Do(func() {}) // from now on abort does nothing
	if s.watching && !s.cut {
		s.data.Resume()
	}
	return !s.cut
}

// end is called when this side is about to end its direction.
func (s *stream) end() {
	s.endMu.Lock()
	defer s.endMu.Unlock()
	s.ended = true
	if s.watching {
		s.data.Interrupt()
	}
}

// isCut is called when the peer has ended its direction. It waits until this side does, and reports whether the peer closed
// the data connection before.
func (s *stream) isCut() bool {
	s.endMu.Lock()
	if s.ended {
		s.endMu.Unlock()
		return false
	}
	s.watching = true
	s.endMu.Unlock()
	cut := s.data.WaitForCut()
	s.endMu.Lock()
	defer s.endMu.Unlock()
	return cut && !s.ended
}

func (s *stream) counter(direction *atomic.Uint64) func(int) {
	return func(n int) {
		direction.Add(uint64(n))
		s.carried.Add(uint64(n))
	}
}

// abort ends both directions, so that neither side takes it for a proper end.
func (s *stream) abort() {
	s.once.Do(func() {
		s.cut = true
		_ = s.plain.SetLinger(0)
		_ = s.plain.Close()
		s.data.Abort()
	})
}
