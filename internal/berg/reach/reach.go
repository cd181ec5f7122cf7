package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// maxConnecting is how many instances are connected to at the same time. Further ones are not waited for.
	maxConnecting = 64
	// attemptTimeout ends an attempt whose packets are dropped: the kernel would send them again after a second.
	attemptTimeout = 250 * time.Millisecond
	retryInterval  = 50 * time.Millisecond
)

// Waiter connects to instances.
type Waiter struct {
	timeout time.Duration
	clock   clock.PassiveClock
	dial    func(ctx context.Context, to netip.AddrPort) error
	slots   chan struct{}

	mu    sync.Mutex
	waits map[types.NamespacedName]*wait
	trust trust
}

// wait is that for one instance.
type wait struct {
	uid  types.UID
	over bool
}

// New returns a Waiter that waits for an instance for no longer than timeout; 0: it waits for none.
func New(timeout time.Duration, passive clock.PassiveClock) *Waiter {
	return newWaiter(timeout, passive, func(ctx context.Context, to netip.AddrPort) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func newWaiter(timeout time.Duration, passive clock.PassiveClock, dial func(context.Context, netip.AddrPort) error) *Waiter {
	return &Waiter{timeout: timeout, clock: passive, dial: dial, slots: make(chan struct{}, maxConnecting), waits: map[types.NamespacedName]*wait{}}
}

// Over reports whether the instance need not be waited for any more: all addresses have accepted a connection, or the
// timeout is over. If not, requeue is called when that changes. It does not block.
func (r *Waiter) Over(key types.NamespacedName, uid types.UID, addresses []netip.AddrPort, requeue func()) bool {
	if r == nil || r.timeout <= 0 || len(addresses) == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.waits[key]; w != nil && w.uid == uid {
		return w.over
	}
	select {
	case r.slots <- struct{}{}:
	default:
		return true
	}
	if !r.trust.begin(r.clock.Now()) {
		<-r.slots
		return true
	}
	w := &wait{uid: uid}
	r.waits[key] = w
	go func() {
		ok := r.connect(addresses)
		r.end(w, ok)
		<-r.slots
		requeue()
	}()
	return false
}

// Forget drops what is known of an instance.
func (r *Waiter) Forget(key types.NamespacedName) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waits, key)
}

func (r *Waiter) end(w *wait, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.over = true
	before := r.trust.proven
	r.trust.end(ok, r.clock.Now())
	if before && !r.trust.proven {
		logf.Log.Info("Node ports cannot be reached from the operator. Instances become Running without a connection to them, until one succeeds")
	}
}

// connect reports whether all addresses accept a connection in time.
func (r *Waiter) connect(addresses []netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	for _, to := range addresses {
		if !r.connectTo(ctx, to) {
			return false
		}
	}
	return true
}

func (r *Waiter) connectTo(ctx context.Context, to netip.AddrPort) bool {
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := r.dial(attempt, to)
		cancel()
		switch {
		case err == nil:
			return true
		case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EPERM):
			return false // the nodes are not reached from here
		}
		// A node port that is not served yet refuses connections.
		retry := time.NewTimer(retryInterval)
		select {
		case <-ctx.Done():
			retry.Stop()
			return false
		case <-retry.C:
		}
	}
}
