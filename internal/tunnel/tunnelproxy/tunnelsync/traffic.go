package tunnelsync

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// trafficInterval is how often server proxies are asked for their counters.
const trafficInterval = 15 * time.Second

// maxAsked is how many are asked at the same time.
const maxAsked = 16

var (
	streamsActive = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tunnel_streams_active",
		Help: "Streams that are open, over all pairs of proxies. Only the leader reports it.",
	})
	tunnelsNow = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tunnel_tunnels",
		Help: "Tunnels of all running pairs of proxies, by state. Only the leader reports it.",
	}, []string{"state"})
	certificateExpiry = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tunnel_certificate_expiry_timestamp_seconds",
		Help: "When the first certificate of a running proxy expires, in seconds since 1970; 0 while no pair runs. Only the leader reports it.",
	})
	certificateLifetime = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tunnel_certificate_lifetime_seconds",
		Help: "TUNNEL_CERTIFICATE_LIFETIME in seconds. Certificates are renewed after two thirds of it.",
	})
	streams = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tunnel_streams_total",
		Help: "Streams that were connected at both ends.",
	})
	streamFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tunnel_stream_failures_total",
		Help: "Client connections that were closed because no stream to the server could be made, by reason.",
	}, []string{"reason"})
	bytesCarried = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tunnel_bytes_total",
		Help: "Bytes of payload carried by streams, by direction.",
	}, []string{"direction"})
)

func init() {
	metrics.Registry.MustRegister(streamsActive, tunnelsNow, certificateExpiry, certificateLifetime, streams, streamFailures, bytesCarried)
	// Without a series at 0 the first failure would not show as an increase.
	for number, name := range control.StreamError_name {
		if number != 0 {
			streamFailures.WithLabelValues(reasonLabel(name))
		}
	}
	bytesCarried.WithLabelValues("to_server")
	bytesCarried.WithLabelValues("to_client")
	for _, state := range tunnelStates {
		tunnelsNow.WithLabelValues(string(state))
	}
}

// tunnelStates are all states of a tunnel.
var tunnelStates = []tunnelv1.TunnelState{tunnelv1.TunnelReady, tunnelv1.TunnelFailed}

func reasonLabel(name string) string {
	return strings.ToLower(strings.TrimPrefix(name, "STREAM_ERROR_"))
}

// Traffic adds up the counters of all server proxies. A counter starts at 0 with each process; the sums do not.
type Traffic struct {
	Reader client.Reader
	Jobs   *jobs.Runner
	// Identity returns the operator's identity for calls to a pair, if it is known yet.
	Identity func(types.UID) (id *pki.Identity, known bool)
	Config   config.Tunnel

	mu   sync.Mutex
	seen map[types.UID]sum
}

// ServerProblems returns why the servers of the tunnels of a pair do not answer, by the names of the tunnels; "" for a server that
// answers. It contains only servers that were checked. A change enqueues the pair.
func (t *Traffic) ServerProblems(uid types.UID) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[uid].servers
}

// sum has the counters of one server proxy, and its report about servers.
type sum struct {
	instance                    string
	streams, toServer, toClient uint64
	failures                    map[string]uint64
	active                      uint64
	// notAfter is when the first certificate of the pair expires, in seconds since 1970.
	notAfter int64
	// servers says why the servers of tunnels do not answer, by tunnel; "" for a server that does.
	servers map[string]string
	known   bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader calls proxies.
func (t *Traffic) NeedLeaderElection() bool { return true }

// Start asks all server proxies every 15 s, until the operator stops.
func (t *Traffic) Start(ctx context.Context) error {
	tick := time.NewTicker(trafficInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.round(ctx)
		}
	}
}

// round asks maxAsked server proxies at a time, and waits for all of them. A pair that does not answer keeps its last numbers, so
// that the sums do not fall.
func (t *Traffic) round(ctx context.Context) {
	var all tunnelv1.ContainerNetworkTunnelProxyList
	if err := t.Reader.List(ctx, &all, client.DisableReadYourWritesConsistency); err != nil {
		return // only a cache that is shutting down fails
	}
	slots, asked := make(chan struct{}, maxAsked), sync.WaitGroup{}
	live, states := map[types.UID]bool{}, map[tunnelv1.TunnelState]int{}
	for i := range all.Items {
		p := &all.Items[i]
		if p.Status.State != tunnelv1.StateRunning || p.DeletionTimestamp != nil || p.Status.ServerProxyControlPort == 0 {
			continue
		}
		live[p.UID] = true
		for _, tunnel := range p.Status.TunnelStatuses {
			states[tunnel.State]++
		}
		slots <- struct{}{}
		asked.Go(func() {
			defer func() { <-slots }()
			t.ask(ctx, p)
		})
	}
	asked.Wait()
	active, expiry := t.totals(live)
	streamsActive.Set(float64(active))
	certificateExpiry.Set(float64(expiry))
	certificateLifetime.Set(t.Config.CertificateLifetime.Seconds())
	for _, state := range tunnelStates {
		tunnelsNow.WithLabelValues(string(state)).Set(float64(states[state]))
	}
}

// totals forgets pairs that no longer run. For the others it returns the number of their streams, and the time when
// their first certificate expires, 0 if none is known.
func (t *Traffic) totals(live map[types.UID]bool) (active uint64, expiry int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid, s := range t.seen {
		if !live[uid] {
			delete(t.seen, uid)
			continue
		}
		active += s.active
		if s.notAfter != 0 && (expiry == 0 || s.notAfter < expiry) {
			expiry = s.notAfter
		}
	}
	return active, expiry
}

// ask enqueues the pair if something has changed that its status shows. Errors are dropped: the reconciliation calls the same
// proxy.
func (t *Traffic) ask(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) {
	identity, known := t.Identity(p.UID)
	if !known {
		return // it was not reconciled yet since the operator started
	}
	caller, err := control.Dial(hostPort(p.Status.ServerProxyAddress, p.Status.ServerProxyControlPort), identity, pki.ServerProxy)
	if err != nil {
		return
	}
	defer caller.Close() //nolint:errcheck // the call is over
	ctx, cancel := context.WithTimeout(ctx, t.Config.CallTimeout)
	defer cancel()
	listed, err := caller.ListTunnels(ctx, &control.ListTunnelsRequest{})
	if err != nil {
		return // the reconciliation of the pair reports it
	}
	if t.count(p.UID, sumTunnels(listed)) {
		t.Jobs.Enqueue(p.Name, 0)
	}
}

// sumTunnels adds the traffic of deleted tunnels, which the server proxy keeps as one sum, so that counters never fall.
func sumTunnels(listed *control.ListTunnelsResponse) sum {
	s := sum{instance: listed.GetInstance(), active: listed.GetActiveStreams(), notAfter: listed.GetCertificateNotAfter(), failures: map[string]uint64{}, servers: map[string]string{}, known: true}
	add := func(added *control.Traffic) {
		s.streams += added.GetStreams()
		s.toServer += added.GetBytesToServer()
		s.toClient += added.GetBytesToClient()
		for _, f := range added.GetFailures() {
			s.failures[reasonLabel(f.GetError().String())] += f.GetCount()
		}
	}
	add(listed.GetDeleted())
	for _, tunnel := range listed.GetTunnels() {
		add(tunnel.GetTraffic())
		if tunnel.GetServerChecked() {
			s.servers[tunnel.GetSpec().GetName()] = conditions.Shorten(tunnel.GetServerError(), maxError)
		}
	}
	return s
}

// count adds the increase since the last report, and returns whether the report about servers differs. The first report of
// a pair is only a baseline: an earlier operator process has counted its traffic. A server proxy that was started again counts
// from zero, which the instance shows. What it carried between the last report and its end is lost.
func (t *Traffic) count(uid types.UID, now sum) (serversChanged bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.seen[uid]
	if t.seen == nil {
		t.seen = map[types.UID]sum{}
	}
	t.seen[uid] = now
	serversChanged = !maps.Equal(before.servers, now.servers)
	if !before.known {
		return serversChanged
	}
	if before.instance != now.instance {
		before = sum{}
	}
	streams.Add(increase(before.streams, now.streams))
	bytesCarried.WithLabelValues("to_server").Add(increase(before.toServer, now.toServer))
	bytesCarried.WithLabelValues("to_client").Add(increase(before.toClient, now.toClient))
	for reason, n := range now.failures {
		streamFailures.WithLabelValues(reason).Add(increase(before.failures[reason], n))
	}
	return serversChanged
}

func increase(before, now uint64) float64 {
	if now < before {
		return 0
	}
	return float64(now - before)
}
