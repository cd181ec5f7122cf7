package instances

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

func TestReachable(t *testing.T) {
	began := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	refused := errors.New("connection refused")
	tcp := bergv1.ServiceEndpoint{Hostname: "a", Port: 1}
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
		"has datagrams only":        {view.Running, time.Second, []bergv1.ServiceEndpoint{udp}, refused, true},
		"does not run, as it shows": {view.Starting, time.Second, []bergv1.ServiceEndpoint{tcp}, refused, true},
	} {
		s := &Store{options: Options{
			ConnectWait: 5 * time.Second, Clock: clocktesting.NewFakeClock(began.Add(tc.after)),
			Dial: func(context.Context, string, string) error { return tc.err },
		}}
		if got := s.Reachable(t.Context(), Instance{State: tc.state, Since: began, Endpoints: tc.endpoints}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
