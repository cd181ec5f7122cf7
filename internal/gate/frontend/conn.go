package frontend

import (
	"bytes"
	"net"
)

// counted calls release when the connection is closed.
type counted struct {
	net.Conn
	release func()
}

// Close closes the connection.
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close() //nolint:wrapcheck // net.Conn has the text
}

// CloseWrite ends one direction, if the connection can.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // net.Conn has the text
	}
	return nil
}

// recorder keeps the bytes that it reads, until it is known that the connection ends here. After refuse, nothing is written: the library would
// send an alert of its own.
type recorder struct {
	net.Conn
	read    bytes.Buffer
	done    bool
	refused error
}

// Read reads, and keeps the bytes.
func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if !r.done {
		r.read.Write(b[:n])
	}
	return n, err //nolint:wrapcheck // net.Conn has the text
}

// Write writes, unless the connection was refused.
func (r *recorder) Write(b []byte) (int, error) {
	if r.refused != nil {
		return len(b), nil //nolint:nilerr // the library must not send its own alert
	}
	return r.Conn.Write(b) //nolint:wrapcheck // net.Conn has the text
}

// CloseWrite ends one direction, if the connection can.
func (r *recorder) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // net.Conn has the text
	}
	return nil
}

func (r *recorder) refuse(reason error) error {
	r.refused = reason
	return reason
}

func (r *recorder) forget() {
	r.done = true
	r.read = bytes.Buffer{}
}

// replay returns the connection as it was before anything was read.
func (r *recorder) replay() net.Conn {
	return &replayed{Conn: r.Conn, first: r.read.Bytes()}
}

// replayed is a connection whose first bytes were read before.
type replayed struct {
	net.Conn
	first []byte
}

// Read returns the first bytes, and then reads from the connection.
func (r *replayed) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b) //nolint:wrapcheck // net.Conn has the text
}

// CloseWrite ends one direction, if the connection can.
func (r *replayed) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // net.Conn has the text
	}
	return nil
}
