package dataconn

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"syscall"
	"time"
)

// Conn is a data connection. It carries one stream after the other, because a handshake costs more than most streams.
//
// In each direction it carries frames: their length as four bytes, big-endian, and as many bytes of payload. A frame
// without payload ends its direction of the stream. The next stream may begin in the same record. A cancel, which only the end that
// accepted the connection sends, follows the end of its direction, and asks the peer to stop the other one. The peer may have ended
// that by then: a cancel that it reads later belongs to an earlier stream.
type Conn struct {
	*tls.Conn
	records *records

	// plain has the bytes that were read and not taken yet.
	plain    *[bufferSize]byte
	from, to int
	// frame is how many bytes of the present frame are still to be taken.
	frame int
}

const (
	frameHeader = 4
	// framePayload is how many bytes a frame has at most, so that it fills a batch.
	framePayload = batchSize - frameHeader
	// cancelFrame is sent instead of a length.
	cancelFrame = math.MaxUint32
)

var errFrame = errors.New("the peer sends frames that are too long")

// Accept makes a data connection of a TCP connection that was accepted. The deadline of the connection limits the
// handshake. TLS reads and writes through what limit returns.
func Accept(connection *net.TCPConn, config *tls.Config, limit func(net.Conn) net.Conn) (*Conn, error) {
	s, err := handshake(connection, func(w net.Conn) *tls.Conn { return tls.Server(limit(w), config) })
	if err != nil {
		return nil, err
	}
	return s, s.records.release(false)
}

// Dial makes a data connection of a TCP connection that was dialled. The last flight of the handshake is sent with the
// first bytes that are written.
func Dial(connection *net.TCPConn, config *tls.Config) (*Conn, error) {
	return handshake(connection, func(w net.Conn) *tls.Conn { return tls.Client(w, config) })
}

// handshake leaves the connection to the caller, who closes it after an error.
func handshake(connection *net.TCPConn, wrap func(net.Conn) *tls.Conn) (*Conn, error) {
	w, err := newRecords(connection)
	if err != nil {
		return nil, err
	}
	// A flight of several records is sent with one system call.
	w.handshaking, w.hold = true, true
	s := &Conn{Conn: wrap(w), records: w}
	if err := s.Handshake(); err != nil {
		_ = w.release(false) // the alert that says why
		return nil, err
	}
	w.handshaking = false
	return s, nil
}

// peek waits for bytes, and returns the bytes that have arrived. err is ErrCut if the connection has ended without a TLS
// close, and io.EOF after one.
func (s *Conn) peek() ([]byte, error) {
	if s.plain == nil {
		// Only then is a buffer borrowed.
		if err := s.records.fill(); err != nil {
			return nil, err
		}
		s.plain = borrow()
		n, err := s.readBatch(s.plain[:batchSize])
		if s.from, s.to = 0, n; n == 0 {
			giveBack(s.plain)
			s.plain = nil
			if err == nil {
				err = ErrCut
			}
			return nil, err
		}
		// An error that came with bytes comes again.
	}
	return s.plain[s.from:s.to], nil
}

// take removes n of the bytes that peek has returned.
func (s *Conn) take(n int) {
	if s.from += n; s.from == s.to {
		giveBack(s.plain)
		s.plain = nil
	}
}

// ReadFull reads as many bytes as p has.
func (s *Conn) ReadFull(p []byte) error {
	for len(p) > 0 {
		here, err := s.peek()
		if err != nil {
			return err
		}
		n := copy(p, here)
		s.take(n)
		p = p[n:]
	}
	return nil
}

// readFrames passes the payload of frames on, until the end of the direction.
func (s *Conn) readFrames(give func([]byte) error) error {
	for {
		if s.frame == 0 {
			var header [frameHeader]byte
			if err := s.ReadFull(header[:]); err != nil {
				return err
			}
			length := binary.BigEndian.Uint32(header[:])
			if length == 0 {
				return nil
			}
			// It was sent for a stream that this side had ended by then: see Conn.
			if length == cancelFrame {
				continue
			}
			if length > framePayload {
				return errFrame
			}
			s.frame = int(length)
		}
		here, err := s.peek()
		if err != nil {
			return err
		}
		here = here[:min(len(here), s.frame)]
		if err := give(here); err != nil {
			return err
		}
		s.frame -= len(here)
		s.take(len(here))
	}
}

// readBatch reads the records that have arrived, at least one, into p, which is long enough for one. It may return
// bytes together with an error.
func (s *Conn) readBatch(p []byte) (n int, err error) {
	n, err = s.Read(p)
	s.records.noWait = true
	for err == nil && len(p)-n >= recordSize && s.records.recordReady() {
		var buffered int
		buffered, err = s.Read(p[n:])
		n += buffered
	}
	s.records.noWait = false
	if errors.Is(err, errWouldBlock) {
		err = nil
	}
	return n, err
}

// writeFrame sends n bytes that follow the space for a header in a buffer.
func (s *Conn) writeFrame(buffer *[bufferSize]byte, n int) error {
	binary.BigEndian.PutUint32(buffer[:], uint32(n))
	return s.Send(buffer[:frameHeader+n])
}

// writeEnd ends this direction of the stream.
func (s *Conn) writeEnd() error { return s.Send(make([]byte, frameHeader)) }

// Send writes all of p, with one system call if it is no longer than a batch.
func (s *Conn) Send(p []byte) error {
	// A single record is sent by the Write itself, together with the end of a handshake that is held.
	if len(p) > recordSize {
		s.records.keep()
	}
	if _, err := s.Write(p); err != nil {
		_ = s.records.release(false)
		return err
	}
	return s.records.release(false)
}

// Close closes the connection without a TLS close, and without waiting.
func (s *Conn) Close() error { return s.records.Close() }

// discardTimeout is how long Discard waits for the peer to close the connection, too.
const discardTimeout = 30 * time.Second

// Abort ends all reads and writes. The peer reads an end where no frame ends the stream, and cannot take it for a proper end.
// The connection is not reset, because kubectl port-forward ends with the first reset, and with it all that it forwards.
// Discard must follow. The peer finds no frame that ends the stream, so ErrCut reaches its relay.
func (s *Conn) Abort() {
	_ = s.records.SetDeadline(time.Unix(1, 0))
	_ = s.records.CloseWrite()
}

// Discard closes a connection after Abort. It reads until the peer has closed it, too: closing a connection with unread
// bytes resets it.
func (s *Conn) Discard() {
	_ = s.records.SetDeadline(time.Now().Add(discardTimeout))
	_ = s.records.CloseWrite()
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{s.records.TCPConn})
	_ = s.Close()
}

// Cancel asks the peer to stop a stream whose other direction has ended, and drops the rest of it. It reports whether the peer has
// ended the stream by itself before: then the connection can carry the next one.
func (s *Conn) Cancel() bool {
	_ = s.records.SetDeadline(time.Now().Add(discardTimeout))
	if s.Send(binary.BigEndian.AppendUint32(nil, cancelFrame)) != nil || s.readFrames(func([]byte) error { return nil }) != nil {
		return false
	}
	s.Resume()
	return true
}

// WaitForCut waits until the peer has closed the connection or cancelled the stream, and returns true; or until Interrupt, and
// returns false. It is for the time in which the peer has ended its direction, and this side has not. Bytes that are already
// buffered belong to a cancel: the peer has ended its direction, and sends nothing else.
func (s *Conn) WaitForCut() bool {
	if s.plain != nil || s.records.buffer != nil {
		return true
	}
	err := s.records.reader.raw.Read(func(fd uintptr) bool {
		_, _, problem := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return !isAgain(problem) && !isInterrupted(problem)
	})
	return err == nil
}

// Interrupt ends WaitForCut, also one that begins later.
func (s *Conn) Interrupt() { _ = s.records.SetReadDeadline(time.Unix(1, 0)) }

// Pause ends reads, and a write that the peer does not accept. Cancel or Resume may follow.
func (s *Conn) Pause() {
	s.Interrupt()
	_ = s.records.SetWriteDeadline(time.Now().Add(discardTimeout))
}

// Resume undoes Interrupt and Pause.
func (s *Conn) Resume() { _ = s.records.SetDeadline(time.Time{}) }

// Quiet reports whether nothing has come. Between two streams anything else means that the peer closed the connection, or cancelled
// a stream that has ended.
func (s *Conn) Quiet() bool {
	if s.plain != nil || s.records.buffer != nil {
		return false
	}
	quiet := false
	err := s.records.reader.raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = isAgain(err)
		return true
	})
	return err == nil && quiet
}

// CopyFrom sends the bytes of a plain connection until its end, and then sends the end. It calls count with the number of
// bytes of each batch, and ending before it sends the end.
func (s *Conn) CopyFrom(plain *net.TCPConn, count func(n int), ending func()) error {
	r, err := newReader(plain, frameHeader, framePayload)
	if err != nil {
		return err
	}
	for {
		buffer, n, err := r.next()
		if n > 0 {
			err = s.writeFrame(buffer, n)
			giveBack(buffer)
			count(n)
		}
		if errors.Is(err, io.EOF) {
			ending()
			return s.writeEnd()
		}
		if err != nil {
			return err
		}
	}
}

// CopyTo writes received bytes to a plain connection until the end of this direction of the stream, and then ends the
// plain connection's. It calls count with the number of bytes of each write.
func (s *Conn) CopyTo(plain *net.TCPConn, count func(n int)) error {
	err := s.readFrames(func(p []byte) error {
		_, err := plain.Write(p)
		count(len(p))
		return err
	})
	if err == nil {
		_ = plain.CloseWrite() // if the peer has closed it, CopyFrom gets the error
	}
	return err
}
