package operator

import (
	"net"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// The limits of requests for metrics. Each unknown token costs a TokenReview in the operator's name, and shares the API server's
// attention with the operator's own requests. Prometheus asks every few seconds.
const (
	scrapesOfAddress = 10  // a second, from one address
	burstOfAddress   = 100 // in a burst, from one address
	scrapesOfAll     = 100 // a second
	burstOfAll       = 500 // in a burst
	// maxAddresses limits the memory: the address that asked least recently is forgotten first.
	maxAddresses = 1024
)

// authenticated is the filter of controller-runtime behind the limits.
func authenticated(config *rest.Config, httpClient *http.Client) (server.Filter, error) {
	filter, err := filters.WithAuthenticationAndAuthorization(config, httpClient)
	if err != nil {
		return nil, err
	}
	limits := newScrapeLimits(clock.RealClock{})
	return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
		next, err := filter(log, handler)
		return limits.before(next), err
	}, nil
}

// scrapeLimits are the limits of all clients together and of each address.
type scrapeLimits struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	all   *rate.Limiter
	each  *lru.Cache // of *rate.Limiter, by address
}

func newScrapeLimits(c clock.PassiveClock) *scrapeLimits {
	return &scrapeLimits{clock: c, all: rate.NewLimiter(scrapesOfAll, burstOfAll), each: lru.New(maxAddresses)}
}

// allow reports whether a request of an address may cost something. An address beyond its own limit takes nothing from others.
func (l *scrapeLimits) allow(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	bucket, known := l.each.Get(address)
	if !known {
		bucket = rate.NewLimiter(scrapesOfAddress, burstOfAddress)
		l.each.Add(address, bucket)
	}
	now := l.clock.Now()
	return bucket.(*rate.Limiter).AllowN(now, 1) && l.all.AllowN(now, 1)
}

func (l *scrapeLimits) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			address = r.RemoteAddr
		}
		if !l.allow(address) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests for metrics from this address: ask ten times a second at most", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}
