package frontend

import (
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

// Limits bound what one client, one host and all clients may hold.
type Limits struct {
	// Connections in total, of one address (an IPv6 address counts as its /64), and requests and streams of one host name, of which one
	// address may have half.
	Total, Address, Host int
	// Rate is the number of bytes per second of one address, in both directions together. 0: unlimited.
	Rate int
}

// counter counts what is open, by key, and forgets keys of which nothing is open.
type counter[K comparable] struct {
	mu    sync.Mutex
	limit int
	open  map[K]int
}

func newCounter[K comparable](limit int) *counter[K] {
	return &counter[K]{limit: limit, open: map[K]int{}}
}

// take reports whether one more of the key may be opened. Who took calls release.
func (c *counter[K]) take(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[key] >= c.limit {
		return false
	}
	c.open[key]++
	return true
}

func (c *counter[K]) release(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[key]--; c.open[key] <= 0 {
		delete(c.open, key)
	}
}

// visit is what one address holds of a host.
type visit struct {
	host string
	from netip.Prefix
}

// rates has the limiters of the addresses that have a connection.
type rates struct {
	limit int

	mu   sync.Mutex
	open map[netip.Prefix]*sharedRate
}

type sharedRate struct {
	limiter     *rate.Limiter
	connections int
}

// join returns the limiter of an address. The caller calls leave when the connection ends.
func (r *rates) join(from netip.Prefix) *rate.Limiter {
	if r.limit == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	shared := r.open[from]
	if shared == nil {
		// An eighth of a second at a time, so that a few bytes never wait for long.
		shared = &sharedRate{limiter: rate.NewLimiter(rate.Limit(r.limit), max(r.limit/8, 1))}
		r.open[from] = shared
	}
	shared.connections++
	return shared.limiter
}

func (r *rates) leave(from netip.Prefix) {
	if r.limit == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if shared := r.open[from]; shared != nil {
		if shared.connections--; shared.connections == 0 {
			delete(r.open, from)
		}
	}
}
