package server

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
)

func TestOneAddressTakesNoMoreThanHalfOfTheConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const all = 8
	l := fair(inner, all).(*fairListener)
	accepted := make(chan net.Conn, all)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
		c, err := d.DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var held []net.Conn
	for range all / 2 {
		dial("127.0.0.1")
		held = append(held, <-accepted)
	}
	refused := dial("127.0.0.1")
	if _, err := refused.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("one more connection of the same address was not closed: %v", err)
	}
	dial("127.0.0.2")
	<-accepted

	// A connection that ends makes room, and closing it twice makes room for one.
	_, _ = held[0].Close(), held[0].Close()
	dial("127.0.0.1")
	<-accepted
	again := dial("127.0.0.1")
	if _, err := again.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("a connection that was closed twice made room for two: %v", err)
	}
	_ = inner.Close()
	for c := range accepted {
		_ = c.Close()
	}
}
