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
	// cancels: the peer may have kept the data connection for the next stream as soon as this side has ended its direction.
	// From then on this side asks the peer to stop, and never closes the data connection. The client proxy does so.
	cancels bool

	mu sync.Mutex
	// cut: neither side takes the stream for a proper end. broken: the data connection was ended with it.
	cut, broken bool
	// From ended on, the peer may close the data connection or begin the next stream. Before, its end is a cut, which this
	// side must wait for while it is watching, when it reads nothing else. sent: the end was written. received: the peer's was read.
	ended, sent, received, watching, over bool

	// carried counts the bytes of both directions. The idle timeout compares it with seen, its value at since. Both are
	// under the lock of the streams.
	carried atomic.Uint64
	seen    uint64
	since   time.Time
}

// outcome is what becomes of the data connection after a stream.
type outcome int

const (
	// reusable: it can carry the next stream.
	reusable outcome = iota
	// cancelled: it can, when the peer has stopped sending.
	cancelled
	// unusable: it must be discarded.
	unusable
)

// run returns when both directions have ended, or the stream is cut, and the plain connection is closed.
func (s *stream) run() outcome {
	var outward sync.WaitGroup
	outward.Go(func() {
		err := s.data.CopyFrom(s.plain, s.counter(s.out), s.end)
		if err != nil {
			s.abort()
			s.end()
			return
		}
		s.mu.Lock()
		s.sent = true
		s.mu.Unlock()
	})
	// This direction runs in the caller's goroutine, and the other one in a second: two are enough, and none outlives run.
	if err := s.data.CopyTo(s.plain, s.counter(s.in)); err != nil {
		s.abort()
	} else {
		s.mu.Lock()
		s.received = true
		s.mu.Unlock()
		if s.isCut() {
			s.abort()
		}
	}
	outward.Wait()
	_ = s.plain.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	switch {
	// A direction whose end was not written leaves the peer waiting in the middle of a frame.
	case s.broken || !s.sent:
		return unusable
	case !s.received:
		return cancelled
	}
	// The deadlines that ended the wait or the reads would break the next stream.
	if s.watching || s.cut {
		s.data.Resume()
	}
	return reusable
}

// end is called when this side is about to end its direction.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.watching {
		s.data.Interrupt()
	}
}

// isCut is called when the peer has ended its direction. It waits until this side does, and reports whether the peer closed
// the data connection, or cancelled the stream, before.
func (s *stream) isCut() bool {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return false
	}
	s.watching = true
	s.mu.Unlock()
	cut := s.data.WaitForCut()
	s.mu.Lock()
	defer s.mu.Unlock()
	return cut && !s.ended
}

func (s *stream) counter(direction *atomic.Uint64) func(int) {
	return func(n int) {
		direction.Add(uint64(n))
		s.carried.Add(uint64(n))
	}
}

// abort ends both directions, so that neither side takes it for a proper end. The order matters: the plain connection is reset
// first, so that no client reads an end while the data connection is still being ended.
func (s *stream) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut || s.over {
		return
	}
	s.cut = true
	// Without a linger the close is a reset, which no client or server takes for an end.
	_ = s.plain.SetLinger(0)
	_ = s.plain.Close()
	if s.cancels && s.ended {
		s.data.Pause()
		return
	}
	s.broken = true
	s.data.Abort()
}
