package strangers

import (
	"crypto/tls"
	"net"
)

// Renegotiate begins a second handshake within a connection of TLS 1.2, and returns how the server ends it. It returns nil if the first
// handshake fails, or if the server answers.
func Renegotiate(raw net.Conn, config *tls.Config) error {
	wire := &retyped{Conn: raw}
	config = config.Clone()
	config.MinVersion, config.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	conn := tls.Client(wire, config)
	if conn.Handshake() != nil {
		return nil //nolint:nilerr // no second one was begun
	}
	// A hello within the connection: its record says that it is a handshake, and is encrypted.
	const handshake = 22
	wire.kind = handshake
	if _, err := conn.Write([]byte("\x01\x00\x00\x2a")); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

// retyped changes the type of the TLS records that it writes.
type retyped struct {
	net.Conn
	kind byte
}

// Write changes the type, and writes.
func (c *retyped) Write(b []byte) (int, error) {
	if c.kind != 0 {
		b[0] = c.kind
	}
	return c.Conn.Write(b)
}
