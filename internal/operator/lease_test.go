package operator

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bergctf/berg-operator/internal/kit/clockskew"
)

// record is a lock in memory.
type record struct {
	resourcelock.Interface
	held   resourcelock.LeaderElectionRecord
	broken error
}

func (r *record) Identity() string { return "me" }

func (r *record) Describe() string { return "a record" }

func (r *record) RecordEvent(string) {}

func (r *record) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	held := r.held
	return &held, nil, r.broken
}

func (r *record) Update(_ context.Context, next resourcelock.LeaderElectionRecord) error {
	if r.broken == nil {
		r.held = next
	}
	return r.broken
}

func TestOnlyAValidLeaseAdmitsWrites(t *testing.T) {
	ctx := context.Background()
	lock := &record{}
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	deposed := 0
	l := &lease{Interface: lock, clocks: clockskew.New(now), candidate: make(chan struct{}), deposed: func() { deposed++ }}
	advance := func(d time.Duration) { now.SetTime(now.Now().Add(d)) }
	expect := func(when string, valid bool) {
		t.Helper()
		if l.valid() != valid {
			t.Errorf("%s: valid is %t", when, !valid)
		}
	}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	update := func(r resourcelock.LeaderElectionRecord) {
		_ = l.Update(ctx, r)
	}
	look := func() { _, _, _ = l.Get(ctx) }

	expect("at the start", false)
	lock.held.HolderIdentity = "other"
	look()
	if deposed != 0 {
		t.Error("a replica that waits was deposed")
	}

	update(mine)
	expect("once acquired", true)
	advance(HoldDuration - time.Millisecond)
	expect("just before its end", true)
	lock.broken = errors.New("the API server is away")
	update(mine)
	advance(time.Millisecond)
	expect("at its end, the renewal having failed", false)
	lock.broken = nil
	update(mine)
	expect("renewed", true)

	update(resourcelock.LeaderElectionRecord{})
	expect("released", false)
	look()
	if deposed != 0 {
		t.Error("a replica that gave the lease back was deposed")
	}

	update(mine)
	lock.held.HolderIdentity = "other"
	look()
	expect("another one leads", false)
	if deposed != 1 {
		t.Errorf("deposed was called %d times, want once", deposed)
	}
}

// A machine that was suspended has slept through the end of its lease, and no setting of
// its clock makes a lease last longer.
func TestLeaseEndsByEitherClock(t *testing.T) {
	for name, tc := range map[string]struct {
		admitted, step time.Duration // of monotonic time, and by how much the clock was set
		valid          bool
	}{
		"just renewed":                 {0, 0, true},
		"before its end":               {HoldDuration - 1, 0, true},
		"at its end":                   {HoldDuration, 0, false},
		"suspended for a minute":       {time.Millisecond, time.Minute, false},
		"suspended for a second":       {time.Millisecond, time.Second, true},
		"put back, before its end":     {HoldDuration - 1, -time.Hour, true},
		"put back, at its end":         {HoldDuration, -time.Hour, false},
		"put back just after its end":  {HoldDuration + time.Second, -2 * time.Second, false},
		"put forward beyond its end":   {0, time.Hour, false},
		"put forward, not to the end":  {time.Second, HoldDuration - 2*time.Second, true},
		"together, to its end exactly": {time.Second, HoldDuration - time.Second, false},
	} {
		wall, mono := clocktesting.NewFakePassiveClock(time.Now()), time.Duration(0)
		l := &lease{Interface: &record{}, clocks: clockskew.Clocks{Wall: wall, Monotonic: func() time.Duration { return mono }}}
		if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
			t.Fatal(err)
		}
		mono += tc.admitted
		wall.SetTime(wall.Now().Add(tc.admitted + tc.step))
		if l.valid() != tc.valid {
			t.Errorf("%s: valid is %t", name, !tc.valid)
		}
		if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
			t.Fatal(err)
		}
		if !l.valid() {
			t.Errorf("%s: renewed, it is not valid", name)
		}
	}
}

func TestFenceStopsWritesAlone(t *testing.T) {
	lock := &record{}
	l := &lease{Interface: lock, clocks: clockskew.New(clocktesting.NewFakePassiveClock(time.Now()))}
	sent := 0
	f := fence{lease: l, next: roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{}, nil
	})}
	send := func(method string) error {
		t.Helper()
		request, err := http.NewRequestWithContext(context.Background(), method, "https://api.example.com", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := f.RoundTrip(request) //nolint:bodyclose // there is no answer
		if err == nil && response.Body != nil {
			t.Error("an answer from nowhere")
		}
		return err
	}
	if err := send(http.MethodGet); err != nil {
		t.Errorf("a read without the lease: %v", err)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if err := send(method); !errors.Is(err, errNotLeading) {
			t.Errorf("%s without the lease: %v", method, err)
		}
	}
	if err := l.Update(context.Background(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
	if err := send(http.MethodDelete); err != nil || sent != 2 {
		t.Errorf("%d requests were sent, and a write with the lease gave %v", sent, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
