package reach

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/bergctf/berg-operator/internal/kit/backoff"
)

// maxChallenges limits the memory: the Challenge whose instances started least recently is forgotten first.
const maxChallenges = 4096

// trusts are the trust in each Challenge. A Challenge that never answers costs the others nothing: its author could otherwise
// turn the connections off for all.
type trusts struct {
	// reached: a connection to an instance of any Challenge has succeeded.
	reached bool
	each    *lru.Cache // of *trust, by name of the Challenge
}

func newTrusts() trusts { return trusts{each: lru.New(maxChallenges)} }

// find returns the trust in a Challenge. Where instances of others were reached, a new Challenge is trusted at first.
func (t *trusts) find(challenge types.NamespacedName) *trust {
	if known, ok := t.each.Get(challenge); ok {
		return known.(*trust)
	}
	added := &trust{proven: t.reached}
	t.each.Add(challenge, added)
	return added
}

// end notes how a connection went that begin of its trust has allowed.
func (t *trusts) end(challenge *trust, ok bool, now time.Time) {
	challenge.end(ok, now)
	t.reached = t.reached || ok
}

// trust is whether the node ports of a Challenge are reached from here. Where they are not, as behind a network policy, and on
// nodes that are simulated, no instance must wait for them. So they are tried with one instance at a time until a connection
// succeeds, less and less often.
type trust struct {
	proven bool
	// failures since the last success, while proven
	failures int
	// testing: one instance is being connected to while connections are not proven to work.
	testing bool
	// next is when to try again, losses how often that was put off since the last success.
	next   time.Time
	losses int
}

// maxFailures in a row are due to the network or to the Challenge, and not to single instances.
const maxFailures = 3

// trialDelays are the delays between trials while connections are not proven to work.
var trialDelays = backoff.Exponential{First: time.Minute, Max: time.Hour}

// begin reports whether to connect to an instance.
func (t *trust) begin(now time.Time) bool {
	if t.proven {
		return true
	}
	if t.testing || now.Before(t.next) {
		return false
	}
	t.testing = true
	return true
}

// skip notes that a connection which begin has allowed says nothing about the network.
func (t *trust) skip() { t.testing = false }

// end notes how a connection went that begin has allowed. The third failure in a row ends the trust and starts the delays from
// the first step. One success clears everything.
func (t *trust) end(ok bool, now time.Time) {
	t.testing = false
	if ok {
		*t = trust{proven: true}
		return
	}
	if t.failures++; t.proven && t.failures < maxFailures {
		return
	}
	t.proven, t.failures = false, 0
	t.losses++
	t.next = now.Add(trialDelays.After(t.losses))
}
