package dataconn

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

var (
	// ErrCut says that a data connection ended without a TLS close: the peer's process or host is gone, or it gave the
	// stream up. crypto/tls would take that for a proper end if it came between two records.
	ErrCut = errors.New("the data connection was cut off")
	// errWouldBlock says that the next record is not complete yet.
	errWouldBlock error = wouldBlockError{}
)

// wouldBlockError is an error that crypto/tls takes as temporary, so that it can be read from again.
type wouldBlockError struct{}

func (wouldBlockError) Error() string   { return "the next record is not complete yet" }
func (wouldBlockError) Timeout() bool   { return true }
func (wouldBlockError) Temporary() bool { return true }

// records is the connection below TLS: it reads and writes many records with one system call. It gives them to crypto/tls
// one at a time, so that crypto/tls never buffers one.
type records struct {
	*net.TCPConn

	// For reads.
	reader      *reader
	buffer      *[bufferSize]byte
	from, to    int
	header      [recordHeader]byte
	headerBytes int  // of the current record that have been read
	left        int  // bytes of its payload that have not been read
	noWait      bool // return errWouldBlock instead of waiting for a record
	handshaking bool // held records are sent before a read waits for the answer

	// For writes; mu because crypto/tls may send an alert from a read.
	mu   sync.Mutex
	hold bool
	out  *[bufferSize]byte
	held int
}

func newRecords(connection *net.TCPConn) (*records, error) {
	r, err := newReader(connection, 0, bufferSize)
	if err != nil {
		return nil, err
	}
	return &records{TCPConn: connection, reader: r}, nil
}

// Read reads from one record at most.
func (w *records) Read(p []byte) (int, error) {
	if w.handshaking {
		if err := w.release(true); err != nil {
			return 0, err
		}
	}
	if w.noWait && w.headerBytes == 0 && !w.recordReady() {
		return 0, errWouldBlock
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
func (w *records) fill() error {
	if w.buffer != nil {
		return nil
	}
	buffer, n, err := w.reader.next()
	if errors.Is(err, io.EOF) {
		err = ErrCut
	}
	if err != nil {
		return err
	}
	w.buffer, w.from, w.to = buffer, 0, n
	return nil
}

// recordReady reports whether the next record is complete.
func (w *records) recordReady() bool {
	have := w.to - w.from
	return w.buffer != nil && have >= recordHeader &&
		have >= recordHeader+int(binary.BigEndian.Uint16(w.buffer[w.from+3:]))
}

// Write sends bytes, or holds them until release.
func (w *records) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held > 0 && w.held+len(p) > bufferSize {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	// What is held goes first, since the bytes of a TLS connection have an order.
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

// keep holds further writes until release.
func (w *records) keep() {
	w.mu.Lock()
	w.hold = true
	w.mu.Unlock()
}

// release sends the held bytes. hasNext: further writes are held again.
func (w *records) release(hasNext bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = hasNext
	return w.flush()
}

func (w *records) flush() error {
	if w.out == nil {
		return nil
	}
	_, err := w.TCPConn.Write(w.out[:w.held])
	giveBack(w.out)
	w.out, w.held = nil, 0
	return err
}
