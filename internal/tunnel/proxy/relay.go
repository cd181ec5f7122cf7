package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// flow counts bytes of payload.
type flow struct {
	toServer, toClient atomic.Uint64
}

// stream joins a plain connection, to a client or to a server, with a data connection. What
// comes in at one goes out at the other, in both directions, until each has ended: an end is
// passed on as an end, and a failure as a failure. It takes no more of one side than the
// other one takes.
type stream struct {
	plain *net.TCPConn
	data  *secure
	// out counts what goes from plain to data, in the other direction.
	out, in *atomic.Uint64

	once sync.Once
	cut  bool

	// carried counts what went through in both directions; seen is what it was when somebody looked
	// last and found more, at since. These two are under the lock of the streams.
	carried atomic.Uint64
	seen    uint64
	since   time.Time
}

// run returns when both directions have ended and the plain connection is closed. The data
// connection is free for the next stream then, if the result is true, and closed otherwise.
func (s *stream) run() bool {
	var outward sync.WaitGroup
	outward.Go(s.outward)
	s.inward()
	outward.Wait()
	_ = s.plain.Close()
	s.once.Do(func() {}) // and after that nobody cuts it
	return !s.cut
}

// abort ends both directions at once, so that neither side takes it for a proper end.
func (s *stream) abort() {
	s.once.Do(func() {
		s.cut = true
		_ = s.plain.SetLinger(0)
		_ = s.plain.Close()
		_ = s.data.wire.SetLinger(0)
		s.data.close()
	})
}

func (s *stream) outward() {
	in, err := newInlet(s.plain, frameHeader, framePayload)
	if err != nil {
		s.abort()
		return
	}
	for {
		buffer, n, err := in.next()
		if n > 0 {
			err = s.data.writeFrame(buffer, n)
			giveBack(buffer)
			s.out.Add(uint64(n))
			s.carried.Add(uint64(n))
		}
		if errors.Is(err, io.EOF) {
			if err = s.data.writeEnd(); err == nil {
				return
			}
		}
		if err != nil {
			s.abort()
			return
		}
	}
}

func (s *stream) inward() {
	err := s.data.readFrames(func(p []byte) error {
		_, err := s.plain.Write(p)
		s.in.Add(uint64(len(p)))
		s.carried.Add(uint64(len(p)))
		return err
	})
	if err == nil {
		err = s.plain.CloseWrite()
	}
	if err != nil {
		s.abort()
	}
}
