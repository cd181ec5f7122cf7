// Package strangers holds connections to a port without ever proving who holds them, and confuses hosts: what a client without a token can do.
package strangers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Unfinished is a request whose body does not come.
const Unfinished = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"

// Crowd is a number of clients of one port.
type Crowd struct {
	// Address of the port, as host:port.
	Address string
	// TLS: the clients make a handshake first.
	TLS bool
	// Request is what each sends.
	Request string
	// Stays: the clients keep their connections after an answer, until the server ends them.
	Stays bool
	// Dial connects each. Default: from this machine.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu       sync.Mutex
	conns    map[net.Conn]bool
	answered int
}

// Join adds n clients. A client that is refused is no error.
func (c *Crowd) Join(ctx context.Context, n int) error {
	failures := make(chan error, n)
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		go func() {
			conn, err := c.dial(ctx, i)
			if err == nil {
				c.hold(conn)
			}
			failures <- err
			<-slots
		}()
	}
	var errs []error
	for range n {
		errs = append(errs, <-failures)
	}
	return errors.Join(errs...)
}

// hold keeps a connection until the server answers or ends it.
func (c *Crowd) hold(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		c.conns = map[net.Conn]bool{}
	}
	c.conns[conn] = true
	go func() {
		buffer := make([]byte, 512)
		n, err := conn.Read(buffer) // any end counts
		for c.Stays && err == nil {
			_, err = conn.Read(buffer)
		}
		_ = conn.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, conn)
		c.answered += min(n, 1)
	}()
}

// dial connects from one of many addresses, if the port is at the loopback: there, every address of 127.0.0.0/8 is ours.
func (c *Crowd) dial(ctx context.Context, n int) (net.Conn, error) {
	dialer := net.Dialer{Timeout: time.Minute}
	if host, _, err := net.SplitHostPort(c.Address); err == nil && host == "127.0.0.1" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 1, byte(n%100/50), byte(n%50+1))}
	}
	dial := c.Dial
	if dial == nil {
		dial = dialer.DialContext
	}
	conn, err := dial(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("client %d: %w", n, err)
	}
	sender := conn
	if c.TLS {
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if secure.HandshakeContext(ctx) != nil {
			return conn, nil //nolint:nilerr // the server has closed it already
		}
		_ = conn.SetDeadline(time.Time{})
		sender = secure
	}
	_, _ = sender.Write([]byte(c.Request)) // the same
	return sender, nil
}

// Open returns how many clients still have their connection, without an answer.
func (c *Crowd) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}

// Answered returns how many clients had an answer.
func (c *Crowd) Answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

// Leave closes all connections.
func (c *Crowd) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.Close()
	}
}
