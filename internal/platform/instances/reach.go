package instances

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bergctf/berg-operator/internal/berg/view"
)

const (
	// tryWait is the maximum time of one attempt of Reachable. rCTF asks again after two seconds.
	tryWait = time.Second
	// retryUnreachable is how long no connection is tried to the instances of a Challenge after one of them could not be reached.
	retryUnreachable = 5 * time.Minute
	// maxUnreachable is the number of Challenges without a connection, and with none to another in between, after which the API
	// takes all addresses as unreachable from where it runs.
	maxUnreachable = 3
)

// reachability remembers the Challenges whose instances could not be reached from here, so that only their first start waits
// for ConnectWait. A single Challenge, whose program may refuse on purpose, does not affect the others.
type reachability struct {
	mu sync.Mutex
	// failed has the time of the failure for each Challenge, and silent the Challenges without a connection since the last one to any.
	failed map[string]time.Time
	silent map[string]bool
}

// skips reports whether no connection to the instances of a Challenge is tried now.
func (u *reachability) skips(challenge string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	latest := time.Time{}
	for name, failure := range u.failed {
		if now.Sub(failure) >= retryUnreachable {
			delete(u.failed, name)
		} else if failure.After(latest) {
			latest = failure
		}
	}
	_, failed := u.failed[challenge]
	return failed || len(u.silent) >= maxUnreachable && !latest.IsZero()
}

// connected stores that an instance of a Challenge was reached.
func (u *reachability) connected(challenge string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.failed, challenge)
	clear(u.silent)
}

// unreached stores that an instance of a Challenge was not reached. It reports whether this is news.
func (u *reachability) unreached(challenge string, now time.Time) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.failed == nil {
		u.failed, u.silent = map[string]time.Time{}, map[string]bool{}
	}
	_, known := u.failed[challenge]
	news = !known && !u.silent[challenge]
	u.failed[challenge], u.silent[challenge] = now, true
	return news
}

// Unreachable is the number of Challenges whose instances could not be reached lately.
func (s *Store) Unreachable() int {
	s.reach.skips("", s.options.Clock.Now()) // removes old ones
	s.reach.mu.Lock()
	defer s.reach.mu.Unlock()
	return len(s.reach.failed)
}

// noteUnreached stores that the addresses of an instance did not accept a connection within ConnectWait, and logs it once.
func (s *Store) noteUnreached(i Instance) {
	if s.reach.unreached(i.challenge, s.options.Clock.Now()) {
		s.options.Log.Warn("the addresses of an instance accept no connection from berg-api: the next starts of this Challenge do not wait for one. "+
			"Let the pods of berg-api reach the addresses of players, set CONNECT_WAIT=0 if they never can, or set connectAtStart: false on a port that opens later",
			"challenge", i.challenge, "instance", i.Name, "addresses", tcpAddresses(i), "connectWait", s.options.ConnectWait.String(), "retryAfter", retryUnreachable.String())
	}
}

// connect makes one connection to each TCP address of an instance that runs: a node or a Gateway may need a moment
// until it forwards. It gives up after ConnectWait, since the API may be where the addresses of players are not
// reachable, and then does not try the next starts of the Challenge.
func (s *Store) connect(ctx context.Context, i Instance, deadline <-chan time.Time) {
	addresses := tcpAddresses(i)
	if s.options.ConnectWait <= 0 || len(addresses) == 0 || s.reach.skips(i.challenge, s.options.Clock.Now()) {
		return
	}
	trying, cancel := context.WithTimeout(ctx, s.options.ConnectWait)
	defer cancel()
	done := make(chan struct{})
	var failed atomic.Bool
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for _, address := range addresses {
			all.Go(func() {
				if !s.connectTo(trying, address) {
					failed.Store(true)
				}
			})
		}
		all.Wait()
	}()
	select {
	case <-done:
		switch {
		case !failed.Load():
			s.reach.connected(i.challenge)
		case ctx.Err() == nil:
			s.noteUnreached(i)
		}
	case <-deadline:
		cancel()
		<-done
	}
}

// Reachable reports whether the addresses of a running instance accept connections, for platforms that do not wait for
// the answer to a start. An instance that has run for longer than ConnectWait counts as reachable without a connection,
// because the API may be in a network that cannot reach the addresses of players.
func (s *Store) Reachable(ctx context.Context, i Instance) bool {
	now := s.options.Clock.Now()
	age := now.Sub(i.Since)
	addresses := tcpAddresses(i)
	if i.State != view.Running || age > s.options.ConnectWait || len(addresses) == 0 || s.reach.skips(i.challenge, now) {
		return true
	}
	trying, cancel := context.WithTimeout(ctx, tryWait)
	defer cancel()
	var failed atomic.Bool
	var all sync.WaitGroup
	for _, address := range addresses {
		all.Go(func() {
			if !s.accepts(trying, address) {
				failed.Store(true)
			}
		})
	}
	all.Wait()
	switch {
	case !failed.Load():
		s.reach.connected(i.challenge)
	case ctx.Err() == nil && age+2*tryWait >= s.options.ConnectWait: // the next question comes after ConnectWait
		s.noteUnreached(i)
	}
	return !failed.Load()
}

// tcpAddresses are the addresses of an instance that may be tried. UDP has no connection to try, and a port with
// connectAtStart: false takes its only connection from the player.
func tcpAddresses(i Instance) (all []string) {
	for _, e := range i.Endpoints {
		if e.Protocol != "UDP" && (e.ConnectAtStart == nil || *e.ConnectAtStart) {
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

// connectTo tries an address until a connection is made, and doubles the interval after each attempt. It reports whether one was.
func (s *Store) connectTo(ctx context.Context, address string) bool {
	const first, maximum = 20 * time.Millisecond, 500 * time.Millisecond
	for interval := first; ctx.Err() == nil; interval = min(2*interval, maximum) {
		if s.accepts(ctx, address) {
			return true
		}
		timer := s.options.Clock.NewTimer(interval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return false
}

// dial makes a connection, and closes it.
func dial(ctx context.Context, network, address string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return connection.Close()
}
