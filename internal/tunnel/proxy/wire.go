package proxy

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// A record of TLS holds at most recordSize bytes of payload, and 22 more on the wire.
	recordSize   = 16 << 10
	recordHeader = 5
	recordCost   = 22
	// Bytes go through a proxy in batches of as many full records: the more, the fewer system
	// calls; and what does not fit into the processor's cache is slower again.
	batchRecords = 4
	batchSize    = batchRecords * recordSize
	bufferSize   = batchRecords * (recordSize + recordCost)
)

// buffers are lent while bytes are on their way, and never while nothing comes: idle streams
// have none.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func borrow() *[bufferSize]byte    { return buffers.Get().(*[bufferSize]byte) }
func giveBack(b *[bufferSize]byte) { buffers.Put(b) }
func isAgain(err error) bool       { return errors.Is(err, syscall.EAGAIN) }
func isInterrupted(err error) bool { return errors.Is(err, syscall.EINTR) }
func readError(err error) error    { return os.NewSyscallError("read", err) }

var (
	// errCut is the end of a data connection without a word: the peer's process or host is gone,
	// or it has given the stream up. crypto/tls would take it for a proper end if it came between
	// two records.
	errCut = errors.New("the data connection was cut off")
	// errDry tells that the next record has not come yet.
	errDry error = dry{}
)

// dry is an error that crypto/tls takes as passing, so that it can read on later.
type dry struct{}

func (dry) Error() string   { return "the next record has not come yet" }
func (dry) Timeout() bool   { return true }
func (dry) Temporary() bool { return true }

// inlet reads from a connection, into a buffer that it borrows when there is something to read.
type inlet struct {
	raw  syscall.RawConn
	read func(fd uintptr) bool // take, made once

	room   int // how much is left free at the beginning of a buffer
	limit  int // how much is read at once, at most
	buffer *[bufferSize]byte
	n      int
	err    error
	waits  waits
}

func newInlet(connection *net.TCPConn, room, limit int) (*inlet, error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return nil, err
	}
	i := &inlet{raw: raw, room: room, limit: limit}
	i.read = i.take
	return i, nil
}

// take reads, or tells that it has to be called again when there is something to read.
func (i *inlet) take(fd uintptr) bool {
	i.buffer = borrow()
	try := func() bool { return i.try(fd) }
	if !try() && !poll(i.waits.begin(time.Now()), try) {
		i.drop()
		return false
	}
	i.waits.end(time.Now, i.n)
	if i.n == 0 {
		i.drop()
	}
	return true
}

// drop gives the buffer back, in which there is nothing.
func (i *inlet) drop() {
	giveBack(i.buffer)
	i.buffer = nil
}

// try reads once, and reports whether there was something: bytes, the end, or an error.
func (i *inlet) try(fd uintptr) bool {
	for {
		i.n, i.err = syscall.Read(int(fd), i.buffer[i.room:i.room+i.limit])
		if !isInterrupted(i.err) {
			break
		}
	}
	switch {
	case i.n > 0:
		return true
	case isAgain(i.err):
		i.n, i.err = 0, nil
		return false
	case i.err == nil:
		i.err = io.EOF
	default:
		i.n, i.err = 0, readError(i.err)
	}
	return true
}

// next waits for n bytes, which are behind the room in the buffer. The buffer is the caller's, who
// gives it back.
func (i *inlet) next() (buffer *[bufferSize]byte, n int, err error) {
	if err := i.raw.Read(i.read); err != nil {
		return nil, 0, err
	}
	buffer, n, err = i.buffer, i.n, i.err
	i.buffer, i.n, i.err = nil, 0, nil
	return buffer, n, err
}

// wire is what is below TLS: it reads and writes many records at once, and gives them to
// crypto/tls one at a time, so that none is ever held there unseen.
type wire struct {
	*net.TCPConn

	// Of whoever reads.
	inlet       *inlet
	buffer      *[bufferSize]byte
	from, to    int
	header      [recordHeader]byte
	headerBytes int  // of the record that is being read
	left        int  // of its payload
	noWait      bool // fail with errDry rather than wait for another record
	handshaking bool // what is held goes out before anybody waits for an answer

	// Of whoever writes: an alert may come from the one who reads.
	mu   sync.Mutex
	hold bool
	out  *[bufferSize]byte
	held int
}

func newWire(connection *net.TCPConn) (*wire, error) {
	in, err := newInlet(connection, 0, bufferSize)
	if err != nil {
		return nil, err
	}
	return &wire{TCPConn: connection, inlet: in}, nil
}

// Read reads from one record at most.
func (w *wire) Read(p []byte) (int, error) {
	if w.handshaking {
		if err := w.release(true); err != nil {
			return 0, err
		}
	}
	if w.noWait && w.headerBytes == 0 && !w.recordReady() {
		return 0, errDry
	}
	if err := w.fill(); err != nil {
		return 0, err
	}
	here := w.buffer[w.from:w.to]
	var n int
	if w.headerBytes < recordHeader {
		n = copy(p[:min(len(p), recordHeader-w.headerBytes)], here)
		copy(w.header[w.headerBytes:], here[:n])
		if w.headerBytes += n; w.headerBytes == recordHeader {
			w.left = int(binary.BigEndian.Uint16(w.header[3:]))
		}
	} else {
		n = copy(p[:min(len(p), w.left)], here)
		w.left -= n
	}
	if w.headerBytes == recordHeader && w.left == 0 {
		w.headerBytes = 0
	}
	if w.from += n; w.from == w.to {
		giveBack(w.buffer)
		w.buffer = nil
	}
	return n, nil
}

// fill waits until there are bytes to read.
func (w *wire) fill() error {
	if w.buffer != nil {
		return nil
	}
	buffer, n, err := w.inlet.next()
	if errors.Is(err, io.EOF) {
		err = errCut
	}
	if err != nil {
		return err
	}
	w.buffer, w.from, w.to = buffer, 0, n
	return nil
}

// recordReady reports whether all of the next record is here.
func (w *wire) recordReady() bool {
	have := w.to - w.from
	return w.buffer != nil && have >= recordHeader &&
		have >= recordHeader+int(binary.BigEndian.Uint16(w.buffer[w.from+3:]))
}

// Write writes, or keeps what is written until it is released.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held > 0 && w.held+len(p) > bufferSize {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	if !w.hold || len(p) > bufferSize {
		if err := w.flush(); err != nil {
			return 0, err
		}
		return w.TCPConn.Write(p)
	}
	if w.out == nil {
		w.out = borrow()
	}
	w.held += copy(w.out[w.held:], p)
	return len(p), nil
}

// keep makes what is written wait for release.
func (w *wire) keep() {
	w.mu.Lock()
	w.hold = true
	w.mu.Unlock()
}

// release writes what waits. Unless more is to wait, what is written next goes out at once.
func (w *wire) release(more bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = more
	return w.flush()
}

func (w *wire) flush() error {
	if w.out == nil {
		return nil
	}
	_, err := w.TCPConn.Write(w.out[:w.held])
	giveBack(w.out)
	w.out, w.held = nil, 0
	return err
}

// secure is a data connection. It serves one stream after the other: a handshake costs more than
// most streams do.
//
// In each direction it carries frames: their length, four bytes, big-endian, and as many bytes of
// payload. A frame without payload ends its direction of the stream. What begins the next stream
// may come in the same record.
type secure struct {
	*tls.Conn
	wire *wire

	// What was read and nobody has taken yet.
	plain    *[bufferSize]byte
	from, to int
	// frame is how much of the present frame is still to be taken.
	frame int

	// Of the server proxy, which keeps those that no stream uses.
	config *tls.Config
	born   time.Time
	idle   time.Time
}

const (
	frameHeader = 4
	// framePayload is how much goes into a frame, so that it fills a batch.
	framePayload = batchSize - frameHeader
)

var errFrame = errors.New("the peer sends frames that are too long")

// secureServer puts TLS over a connection that was accepted, and shakes hands. How long that may
// take, the deadline of the connection says.
func secureServer(connection *net.TCPConn, config *tls.Config) (*secure, error) {
	s, err := shake(connection, func(w net.Conn) *tls.Conn { return tls.Server(w, config) })
	if err != nil {
		return nil, err
	}
	return s, s.wire.release(false)
}

// secureClient does the same for a connection that was dialled. The last flight goes out with what
// is written first.
func secureClient(connection *net.TCPConn, config *tls.Config) (*secure, error) {
	return shake(connection, func(w net.Conn) *tls.Conn { return tls.Client(w, config) })
}

func shake(connection *net.TCPConn, wrap func(net.Conn) *tls.Conn) (*secure, error) {
	w, err := newWire(connection)
	if err != nil {
		return nil, err
	}
	// Flights of several records go out at once.
	w.handshaking, w.hold = true, true
	s := &secure{Conn: wrap(w), wire: w}
	if err := s.Handshake(); err != nil {
		// The alert that says why.
		_ = w.release(false)
		return nil, err
	}
	w.handshaking = false
	return s, nil
}

// peek waits for bytes, and returns what there is. err is errCut if the connection has ended,
// and io.EOF if it was closed with a word.
func (s *secure) peek() ([]byte, error) {
	if s.plain == nil {
		// Without a buffer while nothing comes.
		if err := s.wire.fill(); err != nil {
			return nil, err
		}
		s.plain = borrow()
		n, err := s.readBatch(s.plain[:batchSize])
		if s.from, s.to = 0, n; n == 0 {
			giveBack(s.plain)
			s.plain = nil
			if err == nil {
				err = errCut
			}
			return nil, err
		}
		// An error that came with bytes comes again.
	}
	return s.plain[s.from:s.to], nil
}

// take takes n of the bytes that peek has returned.
func (s *secure) take(n int) {
	if s.from += n; s.from == s.to {
		giveBack(s.plain)
		s.plain = nil
	}
}

// readFull reads as many bytes as p has.
func (s *secure) readFull(p []byte) error {
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

// readFrames gives the payload of frames to somebody, until the end of the direction.
func (s *secure) readFrames(give func([]byte) error) error {
	for {
		if s.frame == 0 {
			var header [frameHeader]byte
			if err := s.readFull(header[:]); err != nil {
				return err
			}
			length := binary.BigEndian.Uint32(header[:])
			if length == 0 {
				return nil
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

// readBatch reads what has come, a record at least, into p, which has room for one. It may
// return bytes together with an error.
func (s *secure) readBatch(p []byte) (n int, err error) {
	n, err = s.Read(p)
	s.wire.noWait = true
	for err == nil && len(p)-n >= recordSize && s.wire.recordReady() {
		var more int
		more, err = s.Read(p[n:])
		n += more
	}
	s.wire.noWait = false
	if errors.Is(err, errDry) {
		err = nil
	}
	return n, err
}

// writeFrame sends n bytes that are behind the room for a header in a buffer.
func (s *secure) writeFrame(buffer *[bufferSize]byte, n int) error {
	binary.BigEndian.PutUint32(buffer[:], uint32(n))
	return s.writeBatch(buffer[:frameHeader+n])
}

// writeEnd ends this direction of the stream.
func (s *secure) writeEnd() error { return s.writeBatch(make([]byte, frameHeader)) }

// writeBatch writes all of p with one system call, if it is no longer than a batch.
func (s *secure) writeBatch(p []byte) error {
	// One record goes out by itself, together with the end of a handshake that waits for it.
	if len(p) > recordSize {
		s.wire.keep()
	}
	if _, err := s.Write(p); err != nil {
		_ = s.wire.release(false)
		return err
	}
	return s.wire.release(false)
}

// close closes the connection without waiting for anything.
func (s *secure) close() { _ = s.wire.Close() }

// isQuiet reports whether nothing has come, which is how it is between two streams: anything else
// means that the peer has closed the connection.
func (s *secure) isQuiet() bool {
	if s.plain != nil || s.wire.buffer != nil {
		return false
	}
	quiet := false
	err := s.wire.inlet.raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = isAgain(err)
		return true
	})
	return err == nil && quiet
}
