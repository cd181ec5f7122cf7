package dataconn

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// A TLS record has at most recordSize bytes of payload, and recordCost bytes more.
	recordSize   = 16 << 10
	recordHeader = 5
	recordCost   = 22
	// Bytes go through a proxy in batches of so many full records. More records save system calls, but a batch that does
	// not fit into the CPU cache is slower again.
	batchRecords = 4
	batchSize    = batchRecords * recordSize
	bufferSize   = batchRecords * (recordSize + recordCost)
)

// buffers are borrowed only while bytes are being moved: an idle stream has none.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func borrow() *[bufferSize]byte    { return buffers.Get().(*[bufferSize]byte) }
func giveBack(b *[bufferSize]byte) { buffers.Put(b) }
func isAgain(err error) bool       { return errors.Is(err, syscall.EAGAIN) }
func isInterrupted(err error) bool { return errors.Is(err, syscall.EINTR) }
func readError(err error) error    { return os.NewSyscallError("read", err) }

// reader reads from a connection, into a buffer that it borrows when there are bytes to read.
type reader struct {
	raw  syscall.RawConn
	read func(fd uintptr) bool // the method take; a field saves an allocation for each read

	offset int // where in the buffer bytes are read to
	limit  int // how many bytes are read at a time, at most
	buffer *[bufferSize]byte
	n      int
	err    error
	waits  waits
}

func newReader(connection *net.TCPConn, offset, limit int) (*reader, error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return nil, err
	}
	r := &reader{raw: raw, offset: offset, limit: limit}
	r.read = r.take
	return r, nil
}

// take reads. It returns false to be called again when there is something to read. The buffer is borrowed before the first
// attempt and given back before the wait: an idle stream holds none.
func (r *reader) take(fd uintptr) bool {
	r.buffer = borrow()
	try := func() bool { return r.try(fd) }
	if !try() && !poll(r.waits.begin(time.Now()), try) {
		r.drop()
		return false
	}
	r.waits.end(time.Now, r.n)
	if r.n == 0 {
		r.drop()
	}
	return true
}

// drop gives an empty buffer back.
func (r *reader) drop() {
	giveBack(r.buffer)
	r.buffer = nil
}

// try reads without waiting, and reports whether there was something: bytes, the end, or an error.
func (r *reader) try(fd uintptr) bool {
	for {
		r.n, r.err = syscall.Read(int(fd), r.buffer[r.offset:r.offset+r.limit])
		if !isInterrupted(r.err) {
			break
		}
	}
	switch {
	case r.n > 0:
		return true
	case isAgain(r.err):
		r.n, r.err = 0, nil
		return false
	case r.err == nil:
		r.err = io.EOF
	default:
		r.n, r.err = 0, readError(r.err)
	}
	return true
}

// next waits for bytes. It returns how many are in the buffer, from the offset. The caller must give the buffer back.
func (r *reader) next() (buffer *[bufferSize]byte, n int, err error) {
	if err := r.raw.Read(r.read); err != nil {
		return nil, 0, err
	}
	buffer, n, err = r.buffer, r.n, r.err
	r.buffer, r.n, r.err = nil, 0, nil
	return buffer, n, err
}
