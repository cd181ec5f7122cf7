package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// maxConnecting is how many instances are connected to at the same time, of either stage. Further ones are not waited for.
	maxConnecting = 64
	// An attempt ends that gets no answer: a data plane drops packets before it knows a port, and the kernel would send them
	// again after a second only. The first attempts end soon, the later ones are for networks on which an answer takes long.
	shortTimeout, shortAttempts = 25 * time.Millisecond, 8
	longTimeout                 = 400 * time.Millisecond
	// Intervals between attempts double: most programs open their port a moment after they run.
	minRetryInterval, maxRetryInterval = 5 * time.Millisecond, 40 * time.Millisecond
)

// Instance is what a Waiter must know of an instance.
type Instance struct {
	UID types.UID
	// Challenge of the instance.
	Challenge types.NamespacedName
}

// Waiter connects to instances.
type Waiter struct {
	timeout time.Duration
	clock   clock.PassiveClock
	dial    func(ctx context.Context, to netip.AddrPort) error
	// handshake connects to a listener of a Gateway.
	handshake func(ctx context.Context, to Target) error

	mu sync.Mutex
	// early is for instances whose pods are not ready yet, ready for instances whose pods are.
	early, ready stage
	gate         gateStage
	asks         *askStage
}

// stage is one of the times at which an instance is connected to.
type stage struct {
	slots chan struct{}
	waits map[types.NamespacedName]*wait
	trust trusts
}

// wait is that for one instance.
type wait struct {
	uid  types.UID
	pods []types.UID
	// done: all addresses have accepted a connection, or with pods that are ready, the wait is over.
	done bool
}

// result is how connecting went.
type result int

const (
	connected result = iota
	// refused: something has answered that there is no program, or not yet.
	refused
	// silent: nothing has answered.
	silent
)

// New returns a Waiter that waits for an instance for no longer than timeout; 0: it waits for none.
func New(timeout time.Duration, passive clock.PassiveClock) *Waiter {
	return newWaiter(timeout, passive, connect)
}

// dial is one attempt to connect.
type dial func(ctx context.Context) error

func connect(ctx context.Context, to netip.AddrPort) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	return conn.Close()
}

func newWaiter(timeout time.Duration, passive clock.PassiveClock, dial func(context.Context, netip.AddrPort) error) *Waiter {
	return &Waiter{timeout: timeout, clock: passive, dial: dial, handshake: handshake, early: newStage(), ready: newStage(), gate: newGateStage(maxConnecting), asks: newAskStage(passive)}
}

func newStage() stage {
	return stage{slots: make(chan struct{}, maxConnecting), waits: map[types.NamespacedName]*wait{}, trust: newTrusts()}
}

// Early reports whether the programs in pods have accepted connections at all addresses, although the node does not say so
// yet. If it starts to connect, requeue is called when all have; an instance is connected to once. Without addresses it
// reports only an earlier result. It does not block.
func (r *Waiter) Early(key types.NamespacedName, i Instance, pods []types.UID, addresses []netip.AddrPort, requeue func()) bool {
	if r == nil || r.timeout <= 0 || len(pods) == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// The UID decides, because another instance may have got the same name. Pods that were created later have not
	// been connected to.
	if w := r.early.waits[key]; w != nil && w.uid == i.UID {
		return w.done && !slices.ContainsFunc(pods, func(pod types.UID) bool { return !slices.Contains(w.pods, pod) })
	}
	// The lock is held, so only one reconciliation starts the connections.
	trust := r.early.trust.find(i.Challenge)
	if len(addresses) > 0 && r.early.begin(trust, r.clock.Now()) {
		w := &wait{uid: i.UID, pods: pods}
		r.early.waits[key] = w
		go func() {
			got := r.connect(r.dials(addresses))
			r.endEarly(w, trust, got)
			if got == connected {
				requeue()
			}
		}()
	}
	return false
}

// Over reports whether the instance need not be waited for any more: all addresses have accepted a connection, or the
// timeout is over. If not, requeue is called when that changes. It does not block. It takes no slot for an instance that it does
// not connect to: with all slots in use the instance becomes Running without a connection, because a queue here would delay
// players.
func (r *Waiter) Over(key types.NamespacedName, i Instance, addresses []netip.AddrPort, requeue func()) bool {
	if r == nil || r.timeout <= 0 || len(addresses) == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.ready.waits[key]; w != nil && w.uid == i.UID {
		return w.done
	}
	trust := r.ready.trust.find(i.Challenge)
	if !r.ready.begin(trust, r.clock.Now()) {
		return true
	}
	w := &wait{uid: i.UID}
	r.ready.waits[key] = w
	go func() {
		r.end(w, i.Challenge, trust, r.connect(r.dials(addresses)))
		requeue()
	}()
	return false
}

// Gate reports whether an instance need not be waited for any more, and whether all listeners of its Gateway have accepted a
// connection with its host names. Otherwise requeue is called when that changes. It does not block. It sends no request: a
// challenge might count it.
func (r *Waiter) Gate(key types.NamespacedName, uid types.UID, targets []Target, requeue func()) (over, reached bool) {
	if r == nil || r.timeout <= 0 {
		return true, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.gate.waits[key]; w != nil && w.uid == uid {
		return w.over, w.reached
	}
	select {
	case r.gate.slots <- struct{}{}:
	default:
		return true, false
	}
	// The slot is taken before the trust is asked, since begin of an unproven trust starts its single trial: without a slot that
	// trial would never end.
	if !r.gate.trust.begin(r.clock.Now()) {
		<-r.gate.slots
		return true, false
	}
	w := &gateWait{uid: uid}
	r.gate.waits[key] = w
	dials := make([]dial, 0, len(targets))
	for _, t := range targets {
		dials = append(dials, func(ctx context.Context) error { return r.handshake(ctx, t) })
	}
	go func() {
		got := r.connect(dials)
		r.mu.Lock()
		<-r.gate.slots
		w.over, w.reached = true, got == connected
		r.gate.trust.end(w.reached, r.clock.Now())
		r.mu.Unlock()
		requeue()
	}()
	return false, false
}

// Ask returns what the replicas of the gate say about an instance. It asks until all serve the instance, and calls requeue when the
// answer changes. Another question about the instance replaces the first one. It does not block. Where no replica is reached from
// here, as behind a network policy, the answer is zero after a while.
func (r *Waiter) Ask(key types.NamespacedName, uid types.UID, q Question, requeue func()) Answer {
	if r == nil || r.timeout <= 0 || len(q.Replicas) == 0 {
		return Answer{}
	}
	return r.asks.find(key, uid, q, requeue)
}

// Forget drops the state of an instance.
func (r *Waiter) Forget(key types.NamespacedName) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.early.waits, key)
	delete(r.ready.waits, key)
	delete(r.gate.waits, key)
	r.asks.forget(key)
}

// begin reports whether to connect to one more instance.
func (s *stage) begin(trust *trust, now time.Time) bool {
	select {
	case s.slots <- struct{}{}:
	default:
		return false
	}
	if !trust.begin(now) {
		<-s.slots
		return false
	}
	return true
}

// endEarly: a program that loads says nothing about the network. A refusal comes from the kernel of the pod: packets arrive, and
// the program does not listen yet. Silence may be a network policy, and counts against the trust.
func (r *Waiter) endEarly(w *wait, trust *trust, got result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	<-r.early.slots
	w.done = got == connected
	if got == refused {
		trust.skip()
		return
	}
	r.early.trust.end(trust, w.done, r.clock.Now())
}

// end frees the slot before it judges the result, and under the lock, so that done and the slot change together.
func (r *Waiter) end(w *wait, challenge types.NamespacedName, trust *trust, got result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	<-r.ready.slots
	w.done = true
	before := trust.proven
	r.ready.trust.end(trust, got == connected, r.clock.Now())
	if before && !trust.proven {
		logf.Log.Info("The node ports of a Challenge cannot be reached from the operator. Its instances become Running without a connection to them, until one succeeds",
			"challenge", challenge.String())
	}
}

func (r *Waiter) dials(addresses []netip.AddrPort) (all []dial) {
	for _, to := range addresses {
		all = append(all, func(ctx context.Context) error { return r.dial(ctx, to) })
	}
	return all
}

// connect makes all connections, one after the other, until the timeout. The context is not derived from a reconciliation: the
// connections outlive it.
func (r *Waiter) connect(dials []dial) result {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	for _, to := range dials {
		if got := to.repeat(ctx); got != connected {
			return got
		}
	}
	return connected
}

// repeat tries to connect until ctx ends, with growing intervals. It gives up immediately where an address
// cannot be reached from here at all, and distinguishes a refusal, which shows that packets arrive, from silence.
func (to dial) repeat(ctx context.Context) result {
	last, interval := silent, minRetryInterval
	for n := 0; ; n++ {
		timeout := longTimeout
		if n < shortAttempts {
			timeout = shortTimeout
		}
		attempt, cancel := context.WithTimeout(ctx, timeout)
		err := to(attempt)
		cancel()
		switch {
		case err == nil:
			return connected
		case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EPERM):
			return silent // it is not reached from here
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
			last = refused // as a node port that is not served yet
		}
		retry := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			retry.Stop()
			return last
		case <-retry.C:
		}
		interval = min(2*interval, maxRetryInterval)
	}
}
