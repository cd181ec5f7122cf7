package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// What a client asks the server of the measurements for, with the first byte that it sends.
const (
	// sendMe: bytes, for as long as the connection is open.
	sendMe = 'S'
	// repeatAfterMe: echo all bytes.
	repeatAfterMe = 'E'
)

// serveAll is the server at the end of every tunnel. It returns when the listener is closed.
func serveAll(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-time.After(10 * time.Millisecond)
			continue
		}
		go func() {
			defer c.Close()
			what := make([]byte, 1)
			if _, err := io.ReadFull(c, what); err != nil {
				return
			}
			switch what[0] {
			case sendMe:
				chunk := make([]byte, 256<<10)
				for {
					if _, err := c.Write(chunk); err != nil {
						return
					}
				}
			case repeatAfterMe:
				small := make([]byte, 512)
				for {
					n, err := c.Read(small)
					if n > 0 {
						if _, err := c.Write(small[:n]); err != nil {
							return
						}
					}
					if err != nil {
						return
					}
				}
			}
		}()
	}
}

// open connects, and says what for.
func open(at string, what byte) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", at, 10*time.Second)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte{what}); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("send the first byte: %w", err)
	}
	return c, nil
}
