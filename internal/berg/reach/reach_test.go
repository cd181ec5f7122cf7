package reach

import (
	"context"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

var (
	one = types.NamespacedName{Namespace: "berg", Name: "one"}
	two = types.NamespacedName{Namespace: "berg", Name: "two"}
	to  = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:30000"), netip.MustParseAddrPort("10.0.0.1:30001")}
)

// instance is one of the only Challenge.
func instance(uid types.UID) Instance {
	return Instance{UID: uid, Challenge: types.NamespacedName{Namespace: "berg", Name: "web"}}
}

func TestAnInstanceIsWaitedForUntilItsPortsAcceptConnections(t *testing.T) {
	for name, tc := range map[string]struct {
		dial    func(since time.Duration, to netip.AddrPort) error
		timeout time.Duration
		over    time.Duration // after which Over reports true
	}{
		"at first":       {func(time.Duration, netip.AddrPort) error { return nil }, 3 * time.Second, 0},
		"off":            {func(time.Duration, netip.AddrPort) error { return syscall.ECONNREFUSED }, 0, 0},
		"a moment later": {func(since time.Duration, _ netip.AddrPort) error { return refusedUntil(since, 195*time.Millisecond) }, 3 * time.Second, 195 * time.Millisecond},
		"one port never": {func(_ time.Duration, a netip.AddrPort) error {
			if a.Port() == 30001 {
				return syscall.ECONNREFUSED
			}
			return nil
		}, 3 * time.Second, 3 * time.Second},
		"no way to the nodes": {func(time.Duration, netip.AddrPort) error { return syscall.EHOSTUNREACH }, 3 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w := newWaiter(tc.timeout, clock.RealClock{}, func(_ context.Context, a netip.AddrPort) error { return tc.dial(time.Since(began), a) })
				ended := make(chan struct{})
				if !w.Over(one, instance("1"), to, func() { close(ended) }) {
					if w.Over(one, instance("1"), to, func() { t.Error("it is connected to twice") }) {
						t.Fatal("it is over before it began")
					}
					<-ended
				}
				if got := time.Since(began); got != tc.over {
					t.Errorf("over after %s, want %s", got, tc.over)
				}
				if !w.Over(one, instance("1"), to, func() {}) {
					t.Error("it is not over")
				}
			})
		})
	}
}

// A data plane drops packets before it knows a port: they must not cost much more than the time until it does. On a network
// whose answers take long, an attempt that lasts longer succeeds.
func TestDroppedPacketsAreSentAgainSoon(t *testing.T) {
	for name, tc := range map[string]struct {
		served, answers, most time.Duration
	}{
		"served after 30 ms":    {30 * time.Millisecond, time.Millisecond, 70 * time.Millisecond},
		"served after 100 ms":   {100 * time.Millisecond, time.Millisecond, 165 * time.Millisecond},
		"answers within 300 ms": {0, 300 * time.Millisecond, 1200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w := newWaiter(3*time.Second, clock.RealClock{}, func(ctx context.Context, _ netip.AddrPort) error {
					if time.Since(began) < tc.served {
						<-ctx.Done()
						return ctx.Err()
					}
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(tc.answers):
						return nil
					}
				})
				ended := make(chan struct{})
				w.Over(one, instance("1"), to[:1], func() { close(ended) })
				<-ended
				if got := time.Since(began); got > tc.most {
					t.Errorf("over after %s, want at most %s", got, tc.most)
				}
			})
		})
	}
}

func refusedUntil(since, at time.Duration) error {
	if since < at {
		return syscall.ECONNREFUSED
	}
	return nil
}

// On simulated nodes, and where a policy drops the packets, the wait must not be paid by every instance.
func TestWhereNodesAreNotReachedOneInstanceIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		w := newWaiter(3*time.Second, clock.RealClock{}, func(ctx context.Context, _ netip.AddrPort) error {
			if up.Load() {
				return nil
			}
			<-ctx.Done() // dropped
			return ctx.Err()
		})
		try := func(key types.NamespacedName) (waited bool) {
			defer w.Forget(key)
			ended := make(chan struct{})
			if w.Over(key, instance("1"), to, func() { close(ended) }) {
				return false
			}
			if w.Over(two, instance("2"), to, func() {}) {
				waited = true // no other one at the same time
			}
			<-ended
			return waited
		}
		tries := 0
		for range 24 * 60 {
			if try(one) {
				tries++
			}
			<-time.After(time.Minute)
		}
		if tries < 20 || tries > 40 {
			t.Errorf("%d instances waited in a day, one a minute", tries)
		}
		up.Store(true)
		<-time.After(trialDelays.Max)
		ended := make(chan struct{})
		if w.Over(one, instance("3"), to, func() { close(ended) }) {
			t.Fatal("it is not tried again")
		}
		<-ended
		up.Store(false)
		// Single instances that do not answer change nothing.
		for n := range maxFailures {
			w.Forget(one)
			ended := make(chan struct{})
			if w.Over(one, instance("4"), to, func() { close(ended) }) {
				t.Fatalf("failure %d: it is not tried", n)
			}
			<-ended
		}
		w.Forget(one)
		if !w.Over(one, instance("5"), to, func() {}) {
			t.Error("it is tried after failures in a row")
		}
	})
}

func TestAnotherInstanceOfTheNameIsConnectedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialed := 0
		w := newWaiter(time.Second, clock.RealClock{}, func(context.Context, netip.AddrPort) error { dialed++; return nil })
		for _, uid := range []types.UID{"1", "2"} {
			ended := make(chan struct{})
			if w.Over(one, instance(uid), to[:1], func() { close(ended) }) {
				t.Fatal("it is not connected to")
			}
			<-ended
		}
		if dialed != 2 {
			t.Errorf("%d connections", dialed)
		}
	})
}

// early connects to one instance before its pods are ready, until that has ended, and reports whether it is known to be open.
func early(w *Waiter, key types.NamespacedName, pods ...types.UID) bool {
	w.Early(key, instance("uid"), pods, to, func() {})
	synctest.Wait()
	<-time.After(w.timeout)
	synctest.Wait()
	return w.Early(key, instance("uid"), pods, nil, func() {})
}

func TestProgramsAreConnectedToBeforeTheNodeHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(time.Second, clock.RealClock{}, func(context.Context, netip.AddrPort) error { return nil })
		if w.Early(one, instance("uid"), []types.UID{"a", "b"}, nil, func() { t.Error("it is enqueued for nothing") }) {
			t.Error("it is open without a connection")
		}
		enqueued := false
		if w.Early(one, instance("uid"), []types.UID{"a", "b"}, to, func() { enqueued = true }) {
			t.Error("it is open before the connection")
		}
		synctest.Wait()
		if !enqueued || !w.Early(one, instance("uid"), []types.UID{"a", "b"}, to, func() {}) {
			t.Error("it is not open")
		}
		if !w.Early(one, instance("uid"), []types.UID{"b"}, nil, func() {}) {
			t.Error("it is not open when one of its pods is ready")
		}
		if w.Early(one, instance("uid"), []types.UID{"c"}, to, func() {}) {
			t.Error("a pod is open that was not connected to")
		}
		if w.Early(one, instance("other"), []types.UID{"a"}, nil, func() {}) {
			t.Error("an instance is open because an earlier one of its name was")
		}
		w.Forget(one)
		if w.Early(one, instance("uid"), []types.UID{"a"}, nil, func() {}) {
			t.Error("it is not forgotten")
		}
	})
}

// The node says so when a program has loaded. That it loads says nothing about the network.
func TestAProgramThatLoadsIsLeftToTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := error(syscall.ECONNREFUSED)
		w := newWaiter(time.Second, clock.RealClock{}, func(context.Context, netip.AddrPort) error { return answer })
		for range 2 * maxFailures {
			if early(w, one, "a") {
				t.Fatal("it is open")
			}
			if w.Early(one, instance("uid"), []types.UID{"a"}, to, func() { t.Error("it is connected to twice") }) {
				t.Fatal("it is open later")
			}
			w.Forget(one)
		}
		answer = nil
		if !early(w, one, "a") {
			t.Error("the next one is not connected to")
		}
	})
}

func TestWherePodsAreNotReachedFewAreTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialed := 0
		w := newWaiter(time.Second, clock.RealClock{}, func(context.Context, netip.AddrPort) error { dialed++; return syscall.EHOSTUNREACH })
		for range 100 {
			early(w, one, "a")
			w.Forget(one)
		}
		if dialed == 0 || dialed > 3 {
			t.Errorf("%d connections in 100 seconds", dialed)
		}
	})
}

// An author whose programs never answer turns the connections off for no other author, not even after a restart of the operator.
func TestASilentChallengeCostsOthersNothing(t *testing.T) {
	for name, reached := range map[string]bool{"after a restart": false, "after others were reached": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				silent := types.NamespacedName{Namespace: "mallory", Name: "silent"}
				w := newWaiter(time.Second, clock.RealClock{}, func(ctx context.Context, a netip.AddrPort) error {
					if a.Port() == 1 {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				})
				dial := func(key types.NamespacedName, challenge types.NamespacedName, port uint16) (waited bool) {
					ended := make(chan struct{})
					defer w.Forget(key)
					address := []netip.AddrPort{netip.AddrPortFrom(to[0].Addr(), port)}
					if w.Over(key, Instance{UID: "1", Challenge: challenge}, address, func() { close(ended) }) {
						return false
					}
					<-ended
					return true
				}
				if reached && !dial(one, types.NamespacedName{Name: "first"}, 2) {
					t.Fatal("the first instance is not connected to")
				}
				tried := 0
				for range 10 * maxFailures {
					if dial(two, silent, 1) {
						tried++
					}
				}
				if tried == 0 || tried > maxFailures {
					t.Errorf("%d of its instances were waited for", tried)
				}
				if !dial(one, types.NamespacedName{Namespace: "alice", Name: "web"}, 2) {
					t.Error("the instance of another Challenge is not connected to")
				}
			})
		})
	}
}
