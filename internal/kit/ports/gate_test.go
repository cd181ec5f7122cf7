package ports

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a connection from an address that tests may choose.
type pipe struct {
	net.Conn
	from net.Addr
	once sync.Once
	done chan struct{}
}

func (p *pipe) RemoteAddr() net.Addr { return p.from }

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipe) closed() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func visitor(address string) *pipe {
	return &pipe{from: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 40000)), done: make(chan struct{})}
}

// Clients that open connections and say nothing keep no other client out.
func TestTheOldestUntrustedConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{Untrusted: 4}, slog.New(slog.DiscardHandler))
		trusted := visitor("192.0.2.9")
		g.Admit(trusted).Trust()
		var silent []*pipe
		for n := range 4 {
			silent = append(silent, visitor(fmt.Sprintf("10.0.0.%d", n)))
			g.Admit(silent[n])
		}
		late := visitor("192.0.2.1")
		guest := g.Admit(late)
		if !silent[0].closed() || silent[1].closed() || late.closed() || trusted.closed() {
			t.Fatal("want the oldest connection closed, and no other")
		}
		guest.Trust()
		<-time.After(2 * admitTime)
		for n, c := range silent {
			if !c.closed() {
				t.Errorf("connection %d is open after its timeout", n)
			}
		}
		if late.closed() || trusted.closed() {
			t.Error("a trusted connection was closed")
		}
	})
}

// An address of IPv6 costs nothing: a client has 2^64 of them.
func TestOneClientEndsItsOwnConnections(t *testing.T) {
	for name, address := range map[string]string{"IPv4": "192.0.2.%[2]d", "IPv6": "2001:db8:1:2::%[1]x", "IPv4 in IPv6": "::ffff:192.0.2.%[2]d"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate(Limits{Untrusted: 8}, slog.New(slog.DiscardHandler))
				innocent := visitor("2001:db8:1:3::1")
				g.Admit(innocent)
				<-time.After(time.Millisecond)
				var flood []*pipe
				for n := range 100 {
					flood = append(flood, visitor(fmt.Sprintf(address, n+1, 7)))
					g.Admit(flood[n])
					<-time.After(fresh / 2)
				}
				if innocent.closed() {
					t.Error("a connection of another client was closed")
				}
				open := 0
				for _, c := range flood {
					if !c.closed() {
						open++
					}
				}
				if open != 4 {
					t.Errorf("%d connections of one client are open, want half of 8", open)
				}
			})
		})
	}
}

// A server that stops waits for requests, and not for clients that send none.
func TestAServerThatStopsEndsUntrustedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{}, slog.New(slog.DiscardHandler))
		silent, trusted, late := visitor("10.0.0.1"), visitor("10.0.0.2"), visitor("10.0.0.3")
		g.Admit(silent)
		g.Admit(trusted).Trust()
		<-time.After(fresh)
		g.Admit(late)
		g.Drain()
		if !silent.closed() || trusted.closed() || late.closed() {
			t.Error("want the silent connection closed, and no other")
		}
		<-time.After(admitTime)
	})
}

// A platform may open many connections together. None of them ends before it could say who it is.
func TestFreshConnectionsDoNotEndForOthersOfTheirAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{Untrusted: 8}, slog.New(slog.DiscardHandler))
		for n := range 8 {
			if c := visitor("192.0.2.1"); g.Admit(c) == nil || c.closed() {
				t.Errorf("connection %d was closed", n)
			}
		}
	})
}

// A Gateway is one address: it may be full, and others are served.
func TestConnectionsOfOneAddressAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{Untrusted: 8, Address: 3}, slog.New(slog.DiscardHandler))
		var held []*Guest
		for range 3 {
			guest := g.Admit(visitor("192.0.2.1"))
			guest.Trust()
			held = append(held, guest)
		}
		refused := visitor("192.0.2.1")
		if g.Admit(refused) != nil || !refused.closed() {
			t.Error("one more connection of the address was admitted")
		}
		if g.Admit(visitor("192.0.2.2")) == nil {
			t.Error("another address was refused")
		}
		held[0].Leave()
		held[0].Leave() // it leaves once
		if g.Admit(visitor("192.0.2.1")) == nil {
			t.Error("a connection that ended still counts")
		}
		untrusted := g.Admit(visitor("192.0.2.1")) // in place of the one before, which is not trusted
		if untrusted == nil {
			t.Fatal("an untrusted connection keeps a further one out")
		}
		untrusted.Leave()
		for _, h := range held {
			h.Leave()
		}
		<-time.After(2 * admitTime)
		synctest.Wait()
		if len(g.addresses) > 0 || g.untrusted.Len() > 0 {
			t.Errorf("%d addresses and %d connections are remembered", len(g.addresses), g.untrusted.Len())
		}
	})
}

func TestBytesOfUntrustedClientsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{Bytes: 100 << 10}, slog.New(slog.DiscardHandler))
		small, first, second, trusted := visitor("10.0.0.1"), visitor("10.0.0.2"), visitor("10.0.0.3"), visitor("10.0.0.4")
		g.Admit(small).received(freeBytes)
		g.Admit(first).received(60 << 10)
		platform := g.Admit(trusted)
		platform.received(30 << 10)
		platform.Trust()
		platform.received(1 << 20)
		g.Admit(second).received(60 << 10)
		if small.closed() || !first.closed() || second.closed() || trusted.closed() {
			t.Error("want the oldest connection with a large body closed, and no other")
		}
		if g.bytes != freeBytes+60<<10 {
			t.Errorf("%d bytes are counted", g.bytes)
		}
	})
}

// A client that sends much ends its own connections, also if another one came earlier.
func TestBytesAreThoseOfTheAddressThatSentMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{Bytes: 100 << 10}, slog.New(slog.DiscardHandler))
		server := visitor("192.0.2.1")
		g.Admit(server).received(30 << 10)
		for n := range 20 {
			g.Admit(visitor("10.0.0.1")).received(25 << 10)
			if server.closed() {
				t.Fatalf("connection %d of another client ended the one of the API server", n+1)
			}
		}
	})
}

// A connection that had its answer is a stranger's again, and one whose answer is being made is not.
func TestAnAnsweredConnectionHasATimeoutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{}, slog.New(slog.DiscardHandler))
		conn := visitor("10.0.0.1")
		guest := g.Admit(conn)
		guest.received(1000)
		done, err := guest.handle(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * admitTime)
		g.Drain()
		if conn.closed() {
			t.Fatal("a connection ended before its answer")
		}
		done()
		guest.rest()
		if g.bytes != 0 {
			t.Errorf("%d bytes are counted", g.bytes)
		}
		<-time.After(admitTime / 2)
		if conn.closed() {
			t.Error("the connection had no time for its next request")
		}
		<-time.After(admitTime)
		if !conn.closed() {
			t.Error("the connection stays")
		}
	})
}

// The administrator sees which address is refused, in one line a minute however many connections there are.
func TestRefusalsAreCountedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := NewGate(Limits{Untrusted: 1}, slog.New(slog.NewTextHandler(&log, nil)))
		for n := range 3 * maxCounted {
			g.Admit(visitor(fmt.Sprintf("10.%d.%d.1", n/250, n%250)))
		}
		for range 50 {
			g.Admit(visitor("2001:db8::1"))
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("%d lines", lines)
		}
		if len(g.refusals) > maxCounted {
			t.Errorf("%d addresses are remembered", len(g.refusals))
		}
		clear(g.refusals)
		<-time.After(time.Minute)
		for range 3 {
			g.Admit(visitor("192.0.2.7")).Refused()
		}
		log.Reset()
		<-time.After(time.Minute)
		g.Admit(visitor("192.0.2.8")).Refused()
		if got := log.String(); !strings.Contains(got, "address=192.0.2.7/32") {
			t.Errorf("the log does not name the address: %s", got)
		}
	})
}
