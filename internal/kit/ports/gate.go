package ports

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// maxUntrusted is how many untrusted connections a port has at most. With TLS each costs some 34 KiB.
	maxUntrusted = 512
	// admitTime is how long a connection may stay untrusted: a handshake and a request take milliseconds.
	admitTime = 10 * time.Second
	// fresh is the age up to which a connection is not closed in favour of another one of its address. A platform may
	// open hundreds of connections together.
	fresh = 100 * time.Millisecond
	// maxBytes is how many bytes of bodies all untrusted connections of a port may have sent together: more than two of the
	// largest requests of an API server.
	maxBytes = 16 << 20
	// freeBytes is the size up to which a body never makes its connection end.
	freeBytes = 4 << 10
	// maxCounted is how many addresses the log compares, and maxKnown how many are known.
	maxCounted, maxKnown = 1024, 4096
)

// Limits are what connections of a port may cost. A zero is the default, or no limit.
type Limits struct {
	// Untrusted is how many connections may be untrusted. The oldest one ends in favour of a further one. One address
	// that has half of them ends its own. Default: 512.
	Untrusted int
	// Address is how many connections one address may have, trusted ones included. 0: any number.
	Address int
	// Bytes is how many bytes of bodies all untrusted connections may have sent together. The oldest one with a large body,
	// of the address that has sent most, ends in favour of further bytes. Handlers have as many at a time. Default: 16 MiB.
	Bytes int64
}

// Gate holds the connections of one port whose clients are not trusted yet.
//
// If there are too many, the oldest connection ends and not the latest: a client that opens many connections and says
// nothing cannot keep others out, who say who they are within milliseconds.
type Gate struct {
	limits  Limits
	log     *slog.Logger
	handled *semaphore.Weighted // bytes of the bodies that handlers of untrusted requests have
	known   *lru.Cache          // of netip.Prefix: addresses of clients that were trusted or, at an anonymous port, sent a whole request

	mu         sync.Mutex
	untrusted  list.List // of *Guest, the oldest first
	bytes      int64     // of bodies of untrusted connections
	handshakes handshakes
	addresses  map[netip.Prefix]*address
	refusals   map[netip.Prefix]int
	logged     rate.Sometimes
}

// address is what a gate knows of one client address.
type address struct {
	connections int
	untrusted   list.List // of *Guest, the oldest first
	bytes       int64     // of bodies of these
}

// Guest is a connection of a port.
type Guest struct {
	gate    *Gate
	conn    net.Conn
	from    netip.Prefix
	since   time.Time
	timeout *time.Timer
	left    bool
	// all and own are its elements in the lists of the gate and of its address. Nil: it is trusted.
	all, own  *list.Element
	bytes     int64
	arrived   bool // its request, which is not answered yet
	handshake handshake
}

// NewGate returns the gate of a port. log names it.
func NewGate(limits Limits, log *slog.Logger) *Gate {
	if limits.Untrusted == 0 {
		limits.Untrusted = maxUntrusted
	}
	if limits.Bytes == 0 {
		limits.Bytes = maxBytes
	}
	return &Gate{
		limits: limits, log: log, handled: semaphore.NewWeighted(limits.Bytes), addresses: map[netip.Prefix]*address{}, refusals: map[netip.Prefix]int{},
		logged: rate.Sometimes{Interval: time.Minute}, known: lru.New(maxKnown), handshakes: newHandshakes(),
	}
}

// Network returns the part of an address that identifies a client: all of IPv4, and the /64 network of IPv6, of which one
// client may use every address. It is empty for a peer without an IP address.
func Network(a net.Addr) netip.Prefix {
	peer, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	return network(peer.Addr())
}

func network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	prefix, _ := ip.Prefix(bits) // the length fits
	return prefix
}

// Admit starts the timeout of a connection, and returns nil if its address has too many: the connection is then closed.
// The caller must call Leave when the connection ends.
func (g *Gate) Admit(conn net.Conn) *Guest {
	now := time.Now()
	v := &Guest{gate: g, conn: conn, from: Network(conn.RemoteAddr()), since: now}
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.addresses[v.from]
	if a == nil {
		a = &address{}
		g.addresses[v.from] = a
	}
	oldest := a.untrusted.Front()
	switch crowded := g.limits.Address > 0 && a.connections >= g.limits.Address; {
	case crowded && oldest == nil:
		g.refuse(v.from)
		_ = conn.Close()
		return nil
	// A young connection of the same address is spared, because a platform may open hundreds together. Then the oldest of all ends
	// instead.
	case crowded, a.untrusted.Len() >= max(g.limits.Untrusted/2, 1) && now.Sub(oldest.Value.(*Guest).since) >= fresh:
		g.end(oldest.Value.(*Guest))
	case g.untrusted.Len() >= g.limits.Untrusted:
		g.end(g.untrusted.Front().Value.(*Guest))
	}
	g.addresses[v.from] = a // its last connection may just have ended
	a.connections++
	v.all, v.own = g.untrusted.PushBack(v), a.untrusted.PushBack(v)
	// The timeout also ends a handshake that makes no progress, since closing the connection makes its reads fail.
	v.timeout = time.AfterFunc(admitTime, func() { g.expire(v) })
	return v
}

// Compute waits until the handshake of a connection may compute its keys. It is called when the hello of the client has arrived. The
// caller calls Computed when it sends the answer. It fails if the connection ends before.
func (v *Guest) Compute() error {
	g := v.gate
	_, known := g.known.Get(v.from)
	g.mu.Lock()
	if v.left {
		g.mu.Unlock()
		return net.ErrClosed
	}
	turn := g.handshakes.begin(&v.handshake, known)
	g.mu.Unlock()
	if turn != nil {
		<-turn // leave ends it, too
	}
	if !v.handshake.computes.Load() {
		return net.ErrClosed
	}
	return nil
}

// Computed lets the next handshake compute its keys. It may be called with every write of a connection.
func (v *Guest) Computed() {
	if v.handshake.computes.Load() {
		v.gate.mu.Lock()
		defer v.gate.mu.Unlock()
		v.gate.handshakes.end(&v.handshake)
	}
}

// Trust ends the bounds of a connection whose client has proven who it is.
func (v *Guest) Trust() {
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	if v.all != nil { // every request of a connection calls it
		v.gate.known.Add(v.from, true)
		v.gate.trust(v)
	}
}

// Leave forgets a connection. It may be called more than once.
func (v *Guest) Leave() {
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	v.gate.leave(v)
}

// Refused counts a client that was refused for another reason, such as a wrong token.
func (v *Guest) Refused() {
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	v.gate.refuse(v.from)
}

// handle notes that the request of an untrusted client has arrived, and may take as long as its answer. It waits while handlers have too
// many bytes of bodies, as a handler keeps its bytes when its connection ends. The caller must call done when the handler has returned.
func (v *Guest) handle(ctx context.Context) (done func(), err error) {
	v.gate.mu.Lock()
	weight := min(v.bytes, v.gate.limits.Bytes)
	v.gate.mu.Unlock()
	done = func() {}
	if weight > 0 { // others would wait for those with bodies
		if err := v.gate.handled.Acquire(ctx, weight); err != nil {
			return done, err
		}
		done = func() { v.gate.handled.Release(weight) }
	}
	v.gate.known.Add(v.from, true)
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	v.arrived = true
	v.timeout.Stop()
	return done, nil
}

// rest starts the timeout of an untrusted connection for its next request.
func (v *Guest) rest() {
	g := v.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.all == nil {
		return
	}
	v.arrived, v.since = false, time.Now()
	g.count(v, -v.bytes)
	g.untrusted.MoveToBack(v.all)
	g.addresses[v.from].untrusted.MoveToBack(v.own)
	v.timeout.Reset(admitTime)
}

// received counts bytes of a body, and ends connections with large bodies if all of them have sent too many.
func (v *Guest) received(n int) {
	g := v.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.all == nil {
		return
	}
	g.count(v, int64(n))
	for g.bytes > g.limits.Bytes {
		var largest *Guest
		for element := g.untrusted.Front(); element != nil; element = element.Next() {
			other := element.Value.(*Guest)
			if other.bytes > freeBytes && (largest == nil || g.addresses[other.from].bytes > g.addresses[largest.from].bytes) {
				largest = other
			}
		}
		if largest == nil {
			return
		}
		g.end(largest)
	}
}

func (g *Gate) count(v *Guest, bytes int64) {
	v.bytes += bytes
	g.bytes += bytes
	g.addresses[v.from].bytes += bytes
}

// Drain ends the connections that are untrusted, not fresh and without a request, so that a server which stops does not wait for them.
func (g *Gate) Drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for element := g.untrusted.Front(); element != nil; {
		v := element.Value.(*Guest)
		element = element.Next()
		if !v.arrived && time.Since(v.since) >= fresh {
			g.end(v)
		}
	}
}

// The timer may fire while Trust waits for the lock. The first one wins: a trusted connection is not in the list any more.
func (g *Gate) expire(v *Guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.all != nil {
		g.end(v)
	}
}

// end closes an untrusted connection. Its owner sees that its reads fail. It is called with the lock held. Closing a connection
// does not block, since nothing lingers.
func (g *Gate) end(v *Guest) {
	g.refuse(v.from)
	g.leave(v)
	_ = v.conn.Close()
}

// trust ends the limits for clients that are not known. It may be repeated. The caller holds the lock.
func (g *Gate) trust(v *Guest) {
	if v.all == nil {
		return
	}
	v.timeout.Stop()
	g.count(v, -v.bytes)
	g.untrusted.Remove(v.all)
	g.addresses[v.from].untrusted.Remove(v.own)
	v.all, v.own = nil, nil
}

// leave may be repeated. The caller holds the lock.
func (g *Gate) leave(v *Guest) {
	if v.left {
		return
	}
	v.left = true
	g.handshakes.end(&v.handshake)
	g.trust(v)
	a := g.addresses[v.from]
	if a.connections--; a.connections == 0 {
		delete(g.addresses, v.from)
	}
}

// refuse counts a refusal, and logs all of them once a minute.
func (g *Gate) refuse(from netip.Prefix) {
	if _, known := g.refusals[from]; known || len(g.refusals) < maxCounted {
		g.refusals[from]++
	}
	g.logged.Do(func() {
		all, leader := 0, from
		for address, n := range g.refusals {
			all += n
			if n > g.refusals[leader] {
				leader = address
			}
		}
		g.log.Warn("connections were refused: their clients did not authenticate in time, had a wrong token, or were too many",
			"connections", all, "address", leader.String(), "of this address", g.refusals[leader])
		clear(g.refusals)
	})
}

// Listener lets connections through a gate.
type Listener struct {
	net.Listener
	Gate *Gate
}

// Conn is a connection that was accepted by a Listener.
type Conn struct {
	net.Conn
	*Guest
}

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if guest := l.Gate.Admit(conn); guest != nil {
			return &Conn{conn, guest}, nil
		}
	}
}

// Secure returns a configuration for connections of a Listener. Few of their handshakes compute keys at a time.
func Secure(config *tls.Config) *tls.Config {
	secure, choose := config.Clone(), config.GetConfigForClient
	secure.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if guest := guestBehind(hello.Conn); guest != nil {
			if err := guest.Compute(); err != nil {
				return nil, err
			}
		}
		if choose == nil {
			return nil, nil
		}
		return choose(hello)
	}
	return secure
}

// Write implements net.Conn. The first bytes of a server with TLS answer the hello.
func (c *Conn) Write(b []byte) (int, error) {
	c.Computed()
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.Leave()
	return c.Conn.Close()
}

type guestKey struct{}

// inContext stores the guest of a connection, so that the handlers of its requests find it.
func inContext(ctx context.Context, conn net.Conn) context.Context {
	if guest := guestBehind(conn); guest != nil {
		return context.WithValue(ctx, guestKey{}, guest)
	}
	return ctx
}

// guestBehind returns the guest of a connection, also behind TLS.
func guestBehind(conn net.Conn) *Guest {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(*Conn); ok {
		return c.Guest
	}
	return nil
}

// find returns the guest of a request; nil for a server without a gate, such as the server of a test.
func find(ctx context.Context) *Guest {
	guest, _ := ctx.Value(guestKey{}).(*Guest)
	return guest
}
