package operator

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/bergctf/berg-operator/internal/kit/ports"
)

// The limits of requests for metrics. Each unknown token costs a TokenReview in the operator's name, and shares the API server's
// attention with the operator's own requests. Prometheus asks every few seconds.
const (
	scrapesOfAddress = 10  // a second, from one address
	burstOfAddress   = 100 // in a burst, from one address
	scrapesOfAll     = 100 // a second
	burstOfAll       = 500 // in a burst
	// maxAccepted is how many accepted tokens are remembered.
	maxAccepted = 64
)

// authenticated returns the filter of controller-runtime behind the limits.
func authenticated(config *rest.Config, httpClient *http.Client, log logr.Logger, next http.Handler) (http.Handler, error) {
	filter, err := filters.WithAuthenticationAndAuthorization(config, httpClient)
	if err != nil {
		return nil, err
	}
	limits := newScrapeLimits(clock.RealClock{})
	checked, err := filter(log, limits.accept(next))
	return limits.before(checked), err
}

// scrapeLimits are the limits of all clients together and of each address. Tokens that were accepted before are not limited:
// guesses keep no scraper waiting. The accepted tokens are kept as hashes: a memory dump shows no credential.
type scrapeLimits struct {
	clock    clock.PassiveClock
	each     *ports.Rates
	accepted *lru.Cache // by hash of a token
	mu       sync.Mutex
	all      *rate.Limiter
}

func newScrapeLimits(c clock.PassiveClock) *scrapeLimits {
	return &scrapeLimits{
		clock: c, each: ports.NewRates(scrapesOfAddress, burstOfAddress), accepted: lru.New(maxAccepted),
		all: rate.NewLimiter(scrapesOfAll, burstOfAll),
	}
}

// allow reports whether a request may cost something. An address beyond its own limit takes nothing from others.
func (l *scrapeLimits) allow(r *http.Request, token tokenHash) bool {
	// The token is still checked behind this limit. A revoked one is refused, and only costs a review.
	if _, known := l.accepted.Get(token); known {
		return true
	}
	now := l.clock.Now()
	if !l.each.Allow(now, r) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.AllowN(now, 1)
}

type (
	tokenHash [sha256.Size]byte
	// tokenKey has the tokenHash in a request's context: the filter removes the token from the header of an accepted request.
	tokenKey struct{}
)

func hashToken(r *http.Request) tokenHash {
	return sha256.Sum256([]byte(r.Header.Get("Authorization")))
}

// before limits requests before their token is checked, and ends the connections of clients that are refused.
func (l *scrapeLimits) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := hashToken(r)
		if !l.allow(r, token) {
			ports.Refuse(w, r)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests for metrics: ask ten times a second at most, with a valid token", http.StatusTooManyRequests)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), tokenKey{}, token))
		next.ServeHTTP(&refuser{ResponseWriter: w, request: r}, r)
	})
}

// accept remembers the token of a request that was let through.
func (l *scrapeLimits) accept(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ports.Trust(r.Context())
		if token, ok := r.Context().Value(tokenKey{}).(tokenHash); ok {
			l.accepted.Add(token, nil)
		}
		next.ServeHTTP(w, r)
	})
}

// refuser ends the connection of a client whose token is refused.
type refuser struct {
	http.ResponseWriter
	request *http.Request
}

func (w *refuser) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		ports.Refuse(w.ResponseWriter, w.request)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the writer.
func (w *refuser) Unwrap() http.ResponseWriter { return w.ResponseWriter }
