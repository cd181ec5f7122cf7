package ports

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// maxAddresses limits the memory of Rates: the address that asked least recently is forgotten first.
const maxAddresses = 1024

// Rates limit the requests of each address.
type Rates struct {
	second rate.Limit
	burst  int
	mu     sync.Mutex
	each   *lru.Cache // of *rate.Limiter, by network
}

// NewRates returns Rates of so many requests a second, and of so many in a burst.
func NewRates(second, burst int) *Rates {
	return &Rates{second: rate.Limit(second), burst: burst, each: lru.New(maxAddresses)}
}

// Allow reports whether the client of a request may send one more. An address that was forgotten begins with a full burst. A
// client needs more addresses than maxAddresses to profit.
func (l *Rates) Allow(now time.Time, r *http.Request) bool {
	var from netip.Prefix // empty for what is no address
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from = network(peer.Addr())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	bucket, known := l.each.Get(from)
	if !known {
		bucket = rate.NewLimiter(l.second, l.burst)
		l.each.Add(from, bucket)
	}
	return bucket.(*rate.Limiter).AllowN(now, 1)
}

// Size returns how many addresses are remembered.
func (l *Rates) Size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.each.Len()
}
