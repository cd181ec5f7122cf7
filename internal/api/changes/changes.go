// Package changes tells those that wait for an object of a watch cache that it changed.
package changes

import "sync"

// Changes knows who waits for what. A key is any text that both sides agree on. Its zero value is ready for use.
type Changes struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool
}

// Wait returns a channel that gets a value after a change that is announced under one of the keys, and a function to call at
// the end. Changes that come together may be one value: the channel says that there is something to look at.
func (c *Changes) Wait(keys ...string) (changed <-chan struct{}, stop func()) {
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

// Happened notifies those that wait for one of the keys. It never waits itself.
func (c *Changes) Happened(keys ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		for channel := range c.waiting[key] {
			select {
			case channel <- struct{}{}:
			default: // it knows already that it must look
			}
		}
	}
}
