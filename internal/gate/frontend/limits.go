package frontend

import "sync"

// Limits bound what one client, one host and all clients may hold.
type Limits struct {
	// Connections in total, of one address (an IPv6 address counts as its /64), and of one host name.
	Total, Address, Host int
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
