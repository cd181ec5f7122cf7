// Package changes notifies goroutines that wait for a change of an object in a watch cache.
package changes

import "sync"

// Changes maps keys to the goroutines that wait for them. A key is any text that both sides agree on. The zero value is
// ready for use, and all methods may be called concurrently.
type Changes struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool
}

// Wait returns a channel that receives a value after a change under one of the keys, and a function that the caller
// must call at the end. Several changes may arrive as one value, so a value only means that the caller should read the
// cache again. Call Wait before the first read: a change between the read and the wait is then in the channel and
// cannot be lost.
func (c *Changes) Wait(keys ...string) (changed <-chan struct{}, stop func()) {
	// A buffer of one keeps the change that arrives while the caller reads, and lets Happened send without blocking.
	channel := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[string]map[chan struct{}]bool{}
	}
	for _, key := range keys {
		if c.waiting[key] == nil {
			c.waiting[key] = map[chan struct{}]bool{}
		}
		c.waiting[key][channel] = true
	}
	return channel, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, key := range keys {
			delete(c.waiting[key], channel)
			if len(c.waiting[key]) == 0 {
				delete(c.waiting, key)
			}
		}
	}
}

// Happened notifies every goroutine that waits for one of the keys. It never blocks, so that the event handler of a
// watch can call it.
func (c *Changes) Happened(keys ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		for channel := range c.waiting[key] {
			select {
			case channel <- struct{}{}:
			default: // the waiting goroutine has a value that it has not received yet
			}
		}
	}
}
