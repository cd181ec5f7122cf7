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
	// Rate is the number of bytes per second of one address, in both directions together, and Requests its number of requests. 0: unlimited.
	Rate, Requests int
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

// rates has the limiters of the addresses that have a connection. An address without a connection has no limiter, so the memory
// is bounded by the connections.
type rates struct {
	bytes, requests int

	mu   sync.Mutex
	open map[netip.Prefix]*sharedRate
}

// sharedRate is what all connections of an address share.
type sharedRate struct {
	bytes, requests *rate.Limiter
	connections     int
}

// newLimiter allows an eighth of a second at a time, so that a few bytes or requests never wait for long.
func newLimiter(perSecond int) *rate.Limiter {
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(perSecond/8, 1))
}

// join returns the limiters of an address. The caller calls leave when the connection ends.
func (r *rates) join(from netip.Prefix) *sharedRate {
	r.mu.Lock()
	defer r.mu.Unlock()
	shared := r.open[from]
	if shared == nil {
		shared = &sharedRate{bytes: newLimiter(r.bytes), requests: newLimiter(r.requests)}
		r.open[from] = shared
	}
	shared.connections++
	return shared
}

func (r *rates) leave(from netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if shared := r.open[from]; shared != nil {
		if shared.connections--; shared.connections == 0 {
			delete(r.open, from)
		}
	}
}
