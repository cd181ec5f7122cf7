package instances

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

func TestReachable(t *testing.T) {
	began := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	refused := errors.New("connection refused")
	tcp := bergv1.ServiceEndpoint{Hostname: "a", Port: 1}
	once := bergv1.ServiceEndpoint{Hostname: "c", Port: 3, ConnectAtStart: ptr.To(false)}
	udp := bergv1.ServiceEndpoint{Hostname: "b", Port: 2, Protocol: "UDP"}
	for name, tc := range map[string]struct {
		state     view.State
		after     time.Duration
		endpoints []bergv1.ServiceEndpoint
		err       error
		want      bool
	}{
		"accepts":                   {view.Running, time.Second, []bergv1.ServiceEndpoint{tcp, udp}, nil, true},
		"refuses yet":               {view.Running, time.Second, []bergv1.ServiceEndpoint{udp, tcp}, refused, false},
		"refuses for long":          {view.Running, time.Minute, []bergv1.ServiceEndpoint{tcp}, refused, true},
		"has a name of players":     {view.Running, time.Second, []bergv1.ServiceEndpoint{tcp}, &net.DNSError{IsNotFound: true}, true},
		"serves one connection":     {view.Running, time.Second, []bergv1.ServiceEndpoint{once}, refused, true},
		"has datagrams only":        {view.Running, time.Second, []bergv1.ServiceEndpoint{udp}, refused, true},
		"does not run, as it shows": {view.Starting, time.Second, []bergv1.ServiceEndpoint{tcp}, refused, true},
	} {
		s := &Store{options: Options{
			ConnectWait: 5 * time.Second, Log: slog.New(slog.DiscardHandler), Clock: clocktesting.NewFakeClock(began.Add(tc.after)),
			Dial: func(context.Context, string, string) error { return tc.err },
		}}
		if got := s.Reachable(t.Context(), Instance{State: tc.state, Since: began, Endpoints: tc.endpoints}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// dialled is a Store whose connections are counted, and succeed for some addresses.
func dialled(clock *clocktesting.FakeClock, log *bytes.Buffer, succeeds func(address string) bool) (s *Store, counts map[string]int) {
	counts = map[string]int{}
	return &Store{options: Options{
		ConnectWait: 5 * time.Millisecond, Clock: clock, Log: slog.New(slog.NewTextHandler(log, nil)),
		Dial: func(ctx context.Context, _, address string) error {
			counts[address]++
			if succeeds(address) {
				return nil
			}
			<-ctx.Done() // as packets that are dropped
			return ctx.Err()
		},
	}}, counts
}

func runs(challenge string, endpoints ...bergv1.ServiceEndpoint) Instance {
	return Instance{State: view.Running, Name: challenge + "-1", challenge: challenge, Endpoints: endpoints}
}

func TestAPortThatServesOneConnectionIsLeftToThePlayer(t *testing.T) {
	s, counts := dialled(clocktesting.NewFakeClock(noon), &bytes.Buffer{}, func(string) bool { return true })
	s.connect(t.Context(), runs("once", bergv1.ServiceEndpoint{Hostname: "a", Port: 1, ConnectAtStart: ptr.To(false)}, bergv1.ServiceEndpoint{Hostname: "b", Port: 2}), nil)
	if counts["a:1"] != 0 || counts["b:2"] != 1 {
		t.Errorf("%v", counts)
	}
}

// Where no address can be reached, the first start waits and the log says so once; later starts do not wait, until it is tried again.
func TestUnreachableAddressesAreNoticedOnce(t *testing.T) {
	var log bytes.Buffer
	clock := clocktesting.NewFakeClock(noon)
	s, counts := dialled(clock, &log, func(address string) bool { return address == "good:1" })
	start := func(challenge, host string) {
		s.connect(t.Context(), runs(challenge, bergv1.ServiceEndpoint{Hostname: host, Port: 1}), nil)
	}
	start("web", "web")
	start("web", "web")
	if counts["web:1"] != 1 || strings.Count(log.String(), "level=WARN") != 1 || s.Unreachable() != 1 {
		t.Errorf("%v, %d, log: %s", counts, s.Unreachable(), log.String())
	}
	start("other", "good") // the Challenge of one author does not affect another one
	if counts["good:1"] != 1 {
		t.Errorf("another Challenge is not tried: %v", counts)
	}
	for _, challenge := range []string{"a", "b", "c", "d", "e"} {
		start(challenge, challenge)
	}
	if counts["c:1"] != 1 || counts["d:1"] != 0 || counts["e:1"] != 0 {
		t.Errorf("each Challenge waits, although none can be reached: %v", counts)
	}
	clock.Step(retryUnreachable)
	if s.Unreachable() != 0 {
		t.Errorf("%d are unreachable for good", s.Unreachable())
	}
	before := strings.Count(log.String(), "level=WARN")
	start("d", "d")
	start("e", "e")
	start("a", "a")
	if counts["d:1"] != 1 || counts["a:1"] != 1 || strings.Count(log.String(), "level=WARN") > before+1 {
		t.Errorf("after a while: %v, log: %s", counts, log.String())
	}
	clock.Step(retryUnreachable)
	start("other", "good")
	start("f", "f")
	if counts["good:1"] != 2 || counts["f:1"] != 1 {
		t.Errorf("a connection does not end it: %v", counts)
	}
}

// rCTF asks every two seconds: the last question within ConnectWait notices it.
func TestPollsNoticeUnreachableAddresses(t *testing.T) {
	var log bytes.Buffer
	clock := clocktesting.NewFakeClock(noon)
	refused := errors.New("connection refused")
	s := &Store{options: Options{
		ConnectWait: 5 * time.Second, Clock: clock, Log: slog.New(slog.NewTextHandler(&log, nil)), Dial: func(context.Context, string, string) error { return refused },
	}}
	i := runs("web", bergv1.ServiceEndpoint{Hostname: "a", Port: 1})
	i.Since = noon
	for _, want := range []bool{false, false, true, true} { // after 2, 4, 6, 8 seconds
		clock.Step(2 * time.Second)
		if got := s.Reachable(t.Context(), i); got != want {
			t.Errorf("after %s: %t", clock.Since(noon), got)
		}
	}
	next := i
	next.Since = clock.Now()
	if !s.Reachable(t.Context(), next) || strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("the next start waits too; log: %s", log.String())
	}
}
