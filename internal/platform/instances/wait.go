package instances

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

var errStopped = Fail(NotFound, "the instance was stopped while it started: start it again")

// WaitRunning waits until an instance runs and its addresses accept connections, until it cannot run, or for the time
// wait, and returns the last known state. It subscribes before it reads, so that no change is lost. A source whose
// limit is reached is refused only after Settle; the instance is then deleted, so that it does not start later without
// a player who waits.
func (s *Store) WaitRunning(ctx context.Context, r Registration, i Instance, wait time.Duration) (Instance, error) {
	changed, stop := s.changes.Wait(pair(r.UID, i.Source))
	defer stop()
	deadline := s.options.Clock.NewTimer(wait)
	defer deadline.Stop()
	settled := s.options.Clock.NewTimer(Settle)
	defer settled.Stop()
	refusable := false // for as long as Settle no slot of the source was about to become free
	for {
		object := &bergv1.ChallengeInstance{}
		err := s.cache.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: i.Name}, object)
		switch {
		case apierrors.IsNotFound(err): // not in the cache yet, or gone
			if gone, confirmErr := s.gone(ctx, r, i); confirmErr != nil || gone {
				return i, errors.Join(confirmErr, errStopped)
			}
		case err != nil:
			return i, err
		case object.UID != i.UID:
			return i, errStopped
		default:
			shown, err := s.show(ctx, r, object)
			if err != nil {
				return i, err
			}
			i = shown
			switch {
			case i.State == view.Running:
				s.connect(ctx, i, deadline.C())
				return i, nil
			case i.State == view.Ending:
				return i, errStopped
			case i.State == view.Failed:
				return i, Fail(Refused, "the instance cannot start: %s", detail(object))
			case i.Limited:
				waits, err := s.slotComes(ctx, r.Namespace, i.Source)
				switch {
				case err != nil:
					return i, err
				case waits:
					refusable = false
					settled.Reset(Settle)
				case refusable:
					message := detail(object)
					return i, errors.Join(s.takeBack(ctx, []*bergv1.ChallengeInstance{object}), Fail(Exhausted, "%s. Stop another instance first", message))
				}
			}
		}
		select {
		case <-changed:
		case <-settled.C():
			refusable = true
		case <-deadline.C():
			return i, nil
		case <-ctx.Done():
			return i, ctx.Err()
		}
	}
}

// Settle is how long an instance may wait for a free slot of its source, until the operator has seen the end of the
// instance that had it. An instance that waits longer, while no other instance of the source ends, is refused.
const Settle = 2 * time.Second

// gone reports whether the API server has no such instance. The cache cannot say so: after a creation it lags.
func (s *Store) gone(ctx context.Context, r Registration, i Instance) (bool, error) {
	object := &bergv1.ChallengeInstance{}
	err := s.live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: i.Name}, object)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && object.UID != i.UID, err
}

// slotComes reports whether an instance of a source ends, so that a waiting instance of the source may start soon.
func (s *Store) slotComes(ctx context.Context, namespace, source string) (bool, error) {
	var list bergv1.ChallengeInstanceList
	if err := s.cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{indexSource: source}); err != nil {
		return false, err
	}
	for n := range list.Items {
		if view.IsEnding(&list.Items[n]) {
			return true, nil
		}
	}
	return false, nil
}

// connect makes one connection to each TCP address of an instance that runs: a node or a Gateway may need a moment
// until it forwards. It gives up after ConnectWait, since the API may be where the addresses of players are not
// reachable.
func (s *Store) connect(ctx context.Context, i Instance, deadline <-chan time.Time) {
	if s.options.ConnectWait <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.ConnectWait)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for _, address := range tcpAddresses(i) {
			all.Go(func() { s.connectTo(ctx, address) })
		}
		all.Wait()
	}()
	select {
	case <-done:
	case <-deadline:
		cancel()
		<-done
	}
}

// Reachable reports whether the addresses of a running instance accept connections, for platforms that do not wait for
// the answer to a start. An instance that has run for longer than ConnectWait counts as reachable without a connection,
// because the API may be in a network that cannot reach the addresses of players.
func (s *Store) Reachable(ctx context.Context, i Instance) bool {
	if i.State != view.Running || s.options.Clock.Since(i.Since) > s.options.ConnectWait {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, tryWait)
	defer cancel()
	var failed atomic.Bool
	var all sync.WaitGroup
	for _, address := range tcpAddresses(i) {
		all.Go(func() {
			if !s.accepts(ctx, address) {
				failed.Store(true)
			}
		})
	}
	all.Wait()
	return !failed.Load()
}

// tryWait is the maximum time of one attempt of Reachable. rCTF asks again after two seconds.
const tryWait = time.Second

// tcpAddresses are the addresses of an instance that accept TCP connections. UDP has no connection to try.
func tcpAddresses(i Instance) (all []string) {
	for _, e := range i.Endpoints {
		if e.Protocol != "UDP" {
			all = append(all, net.JoinHostPort(e.Hostname, strconv.Itoa(int(e.Port))))
		}
	}
	return all
}

// accepts reports whether an address accepts a connection. A name that DNS does not know counts as accepted: names of
// players may not be known where the API runs.
func (s *Store) accepts(ctx context.Context, address string) bool {
	err := s.options.Dial(ctx, "tcp", address)
	var unknown *net.DNSError
	return err == nil || errors.As(err, &unknown) && unknown.IsNotFound
}

// connectTo tries an address until a connection is made, and doubles the interval after each attempt.
func (s *Store) connectTo(ctx context.Context, address string) {
	const first, maximum = 20 * time.Millisecond, 500 * time.Millisecond
	for interval := first; ctx.Err() == nil; interval = min(2*interval, maximum) {
		if s.accepts(ctx, address) {
			return
		}
		timer := s.options.Clock.NewTimer(interval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// dial makes a connection, and closes it.
func dial(ctx context.Context, network, address string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return connection.Close()
}
