package tunnelsync

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// value returns what a counter or a gauge stands at.
func value(t *testing.T, one prometheus.Collector) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(one)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	m := families[0].GetMetric()[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}

func TestIncrease(t *testing.T) {
	for _, test := range []struct {
		before, now uint64
		want        float64
	}{{0, 0, 0}, {0, 7, 7}, {7, 7, 0}, {7, 9, 2}, {9, 7, 0}} {
		if got := increase(test.before, test.now); got != test.want {
			t.Errorf("increase(%d, %d) = %v, want %v", test.before, test.now, got, test.want)
		}
	}
}

func TestSumOf(t *testing.T) {
	some := func(streams uint64, failed ...*control.FailureCount) *control.Traffic {
		return &control.Traffic{Streams: streams, BytesToServer: 10 * streams, BytesToClient: 100 * streams, Failures: failed}
	}
	limit := control.StreamError_STREAM_ERROR_LIMIT
	got := sumTunnels(&control.ListTunnelsResponse{
		Instance: "i", ActiveStreams: 3, CertificateNotAfter: 4711, Deleted: some(1, &control.FailureCount{Error: limit, Count: 2}),
		Tunnels: []*control.TunnelState{
			{Traffic: some(2, &control.FailureCount{Error: limit, Count: 3}, &control.FailureCount{Error: control.StreamError_STREAM_ERROR_TIMEOUT, Count: 1})},
			{},
		},
	})
	if got.instance != "i" || got.active != 3 || got.notAfter != 4711 || !got.known {
		t.Errorf("%+v", got)
	}
	if got.streams != 3 || got.toServer != 30 || got.toClient != 300 {
		t.Errorf("%+v: deleted tunnels count, too", got)
	}
	if len(got.failures) != 2 || got.failures["limit"] != 5 || got.failures["timeout"] != 1 {
		t.Errorf("failures: %v", got.failures)
	}
	if empty := sumTunnels(&control.ListTunnelsResponse{}); empty.streams != 0 || !empty.known {
		t.Errorf("of nothing: %+v", empty)
	}
}

func TestCountAddsWhatIsNew(t *testing.T) {
	const failure = "data_connection_failed"
	counter := &Traffic{}
	look := func(instance string, streamed, failed uint64) (float64, float64) {
		before, failuresBefore := value(t, streams), value(t, streamFailures.WithLabelValues(failure))
		counter.count("u", sum{instance: instance, streams: streamed, failures: map[string]uint64{failure: failed}, known: true})
		return value(t, streams) - before, value(t, streamFailures.WithLabelValues(failure)) - failuresBefore
	}
	for _, test := range []struct {
		what               string
		instance           string
		streamed, failed   uint64
		streams, failuring float64
	}{
		{"counted by an earlier operator process", "a", 100, 5, 0, 0},
		{"what is new", "a", 130, 6, 30, 1},
		{"nothing new", "a", 130, 6, 0, 0},
		{"another process starts at 0", "b", 7, 2, 7, 2},
		{"a counter that fell", "b", 3, 2, 0, 0},
	} {
		if s, f := look(test.instance, test.streamed, test.failed); s != test.streams || f != test.failuring {
			t.Errorf("%s: %v streams and %v failures were added, want %v and %v", test.what, s, f, test.streams, test.failuring)
		}
	}
}

// listing is a client that lists the same pairs each time.
type listing struct {
	client.Client
	pairs []tunnelv1.ContainerNetworkTunnelProxy
}

func (l *listing) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*tunnelv1.ContainerNetworkTunnelProxyList).Items = l.pairs
	return nil
}

func TestRound(t *testing.T) {
	pairOf := func(uid types.UID, state tunnelv1.ContainerNetworkTunnelProxyState, tunnels ...tunnelv1.TunnelState) tunnelv1.ContainerNetworkTunnelProxy {
		p := tunnelv1.ContainerNetworkTunnelProxy{}
		p.UID, p.Status.State, p.Status.ServerProxyControlPort = uid, state, 40000
		for _, s := range tunnels {
			p.Status.TunnelStatuses = append(p.Status.TunnelStatuses, tunnelv1.TunnelStatus{State: s})
		}
		return p
	}
	all := &listing{pairs: []tunnelv1.ContainerNetworkTunnelProxy{
		pairOf("one", tunnelv1.StateRunning, tunnelv1.TunnelReady, tunnelv1.TunnelFailed),
		pairOf("two", tunnelv1.StateRunning, tunnelv1.TunnelReady),
		pairOf("three", tunnelv1.StateFailed, tunnelv1.TunnelFailed),
	}}
	counter := &Traffic{Reader: all, Config: loaded(t), Identity: func(types.UID) (*pki.Identity, bool) { return nil, false }, seen: map[types.UID]sum{
		"one": {active: 2, notAfter: 300}, "two": {active: 3, notAfter: 200}, "three": {active: 5, notAfter: 100}, "gone": {active: 7, notAfter: 50},
	}}
	counter.round(t.Context())
	if got := value(t, streamsActive); got != 5 {
		t.Errorf("%v streams are open, want those of pairs that run", got)
	}
	if got := value(t, certificateExpiry); got != 200 {
		t.Errorf("the first certificate ends at %v, want 200", got)
	}
	if got := value(t, certificateLifetime); got != 2160*3600 {
		t.Errorf("certificates live for %v s", got)
	}
	ready, failed := value(t, tunnelsNow.WithLabelValues("Ready")), value(t, tunnelsNow.WithLabelValues("Failed"))
	if ready != 2 || failed != 1 {
		t.Errorf("%v tunnels are ready and %v have failed, want 2 and 1 of pairs that run", ready, failed)
	}
	if len(counter.seen) != 2 {
		t.Errorf("pairs that do not run are kept: %v", counter.seen)
	}
	all.pairs = nil
	counter.round(t.Context())
	if value(t, certificateExpiry) != 0 || value(t, streamsActive) != 0 {
		t.Error("pairs that are gone are reported")
	}
}
