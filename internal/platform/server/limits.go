package server

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxSources is how many sources are remembered. Beyond that all are forgotten, which bounds the memory: each source
// may then burst again.
const maxSources = 10_000

// limits bound the requests in a second, of all and of each source.
type limits struct {
	all     *rate.Limiter
	each    int
	mu      sync.Mutex
	sources map[string]*rate.Limiter
}

func newLimits(all, each int) *limits {
	return &limits{all: rate.NewLimiter(rate.Limit(all), 2*all), each: each, sources: map[string]*rate.Limiter{}}
}

// request reports whether one more request may go on.
func (l *limits) request(now time.Time) bool { return l.all.AllowN(now, 1) }

// write reports whether a source may start, renew or stop an instance. The limit is for one replica: with several, a source may
// send that many to each.
func (l *limits) write(now time.Time, source string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sources) >= maxSources {
		clear(l.sources)
	}
	bucket, known := l.sources[source]
	if !known {
		bucket = rate.NewLimiter(rate.Limit(l.each), 2*l.each)
		l.sources[source] = bucket
	}
	return bucket.AllowN(now, 1)
}
