package main

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bergctf/berg-operator/test/lib/launch"
)

// fault is what a proxy does to a request.
type fault string

const (
	none        fault = ""
	conflict    fault = "409 conflict"
	throttled   fault = "429 with Retry-After"
	broken500   fault = "500"
	slow        fault = "slow answer"
	cut         fault = "connection cut before the API server heard"
	silent      fault = "no answer for seconds, then cut"
	lost        fault = "written, answer lost"
	denied      fault = "written, answered 500"
	watchCut    fault = "watch cut"
	watchSilent fault = "watch silent for seconds, then cut"
	tooOld      fault = "watch refused with 410"
)

// odds are faults with how often each happens in a thousand requests.
type odds []struct {
	fault fault
	often int
}

var (
	oddsOfWrites = odds{{conflict, 40}, {throttled, 20}, {broken500, 30}, {slow, 60}, {cut, 20}, {silent, 10}, {lost, 40}, {denied, 30}}
	oddsOfReads  = odds{{throttled, 10}, {broken500, 20}, {slow, 40}, {cut, 10}, {silent, 5}}
	// An operator that cannot renew its lease for long does nothing else any more.
	oddsOfLeases  = odds{{conflict, 10}, {broken500, 20}, {slow, 60}, {cut, 10}, {lost, 20}}
	oddsOfWatches = odds{{tooOld, 60}, {broken500, 20}, {watchCut, 300}, {watchSilent, 60}}
)

func (o odds) choose(chance *rand.Rand) fault {
	n := chance.IntN(1000)
	for _, entry := range o {
		if n -= entry.often; n < 0 {
			return entry.fault
		}
	}
	return none
}

// proxy is an operator's line to the API server, through a gate that can cut it. What happens to a request follows
// from the seed, from what is asked for, and from how often it was asked before.
type proxy struct {
	gate    *launch.Gate
	forward http.Handler // passes a request on
	seed    uint64

	mu     sync.Mutex
	calm   bool
	asked  map[string]uint64
	faults map[fault]int
}

func newProxy(account *rest.Config, seed uint64) (*proxy, error) {
	p := &proxy{seed: seed, asked: map[string]uint64{}, faults: map[fault]int{}}
	gate, err := launch.NewGate(account, func(next http.Handler) http.Handler {
		p.forward = next
		return p
	})
	p.gate = gate
	return p, err
}

// decide returns what happens to a request, and where the rest of its luck comes from.
func (p *proxy) decide(r *http.Request) (fault, *rand.Rand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := r.Method + " " + r.URL.Path
	watch := r.URL.Query().Get("watch") != ""
	if watch {
		key += " watch"
	}
	p.asked[key]++
	if p.calm {
		return none, nil
	}
	sum := fnv.New64a()
	_, _ = io.WriteString(sum, key) // it never fails
	chance := rand.New(rand.NewPCG(p.seed^sum.Sum64(), p.asked[key]))
	var chosen fault
	switch {
	case watch:
		chosen = oddsOfWatches.choose(chance)
	case strings.Contains(r.URL.Path, "/leases"):
		chosen = oddsOfLeases.choose(chance)
	case r.Method == http.MethodGet:
		chosen = oddsOfReads.choose(chance)
	default:
		chosen = oddsOfWrites.choose(chance)
	}
	if chosen != none {
		p.faults[chosen]++
	}
	return chosen, chance
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	chosen, chance := p.decide(r)
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(chance.Int64N(int64(to-from))) }
	switch chosen {
	case conflict:
		answer(w, http.StatusConflict, metav1.StatusReasonConflict)
	case throttled:
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	case broken500:
		answer(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case tooOld:
		answer(w, http.StatusGone, metav1.StatusReasonExpired)
	case cut:
		panic(http.ErrAbortHandler)
	case silent:
		_ = pause(r.Context(), between(2*time.Second, 12*time.Second)) // or until the client has gone
		panic(http.ErrAbortHandler)
	case lost:
		p.forward.ServeHTTP(newNowhere(), r)
		panic(http.ErrAbortHandler)
	case denied:
		p.forward.ServeHTTP(newNowhere(), r)
		answer(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case slow:
		_ = pause(r.Context(), between(100*time.Millisecond, 2*time.Second)) // or until the client has gone
		p.forward.ServeHTTP(w, r)
	case watchCut, watchSilent:
		silence := between(time.Second, 15*time.Second)
		end := silence
		if chosen == watchSilent {
			end += between(time.Second, 8*time.Second)
		}
		p.interrupt(w, r, silence, end)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

// interrupt serves a watch until silence; then nothing passes any more, and at the
// end the connection is cut, perhaps in the middle of an event.
func (p *proxy) interrupt(w http.ResponseWriter, r *http.Request, silence, end time.Duration) {
	ctx, cancel := context.WithTimeout(r.Context(), end)
	defer cancel()
	p.forward.ServeHTTP(&muted{w, ctx.Done(), time.Now().Add(silence)}, r.WithContext(ctx))
	panic(http.ErrAbortHandler)
}

// muted lets nothing pass from a time on.
type muted struct {
	http.ResponseWriter
	done <-chan struct{}
	from time.Time
}

func (m *muted) Write(b []byte) (int, error) {
	if time.Now().After(m.from) {
		<-m.done
		return 0, http.ErrAbortHandler
	}
	return m.ResponseWriter.Write(b)
}

// Unwrap lets what was written be flushed.
func (m *muted) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// nowhere takes an answer that the client is not to see.
type nowhere struct{ header http.Header }

func newNowhere() *nowhere { return &nowhere{http.Header{}} }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

// answer is what the API server says when it refuses.
func answer(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "injected: " + string(reason),
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status) // the client may have gone
}

// setCalm ends all faults, or lets them begin.
func (p *proxy) setCalm(calm bool) {
	p.mu.Lock()
	p.calm = calm
	p.mu.Unlock()
}

// count adds the faults so far to a sum.
func (p *proxy) count(sum map[fault]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f, n := range p.faults {
		sum[f] += n
	}
}
