package tunnelproxy

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
)

// trafficPeriod is how often server proxies are asked what went through them: nobody tells by
// himself.
const trafficPeriod = 15 * time.Second

// askedAtOnce is how many are asked at the same time.
const askedAtOnce = 16

var (
	streamsActive = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tunnel_streams_active",
		Help: "Streams that run, of all pairs of proxies. Only the leader reports it.",
	})
	tunnelsNow = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tunnel_tunnels",
		Help: "Tunnels of all pairs of proxies that run, by state. Only the leader reports it.",
	}, []string{"state"})
	certificateExpiry = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tunnel_certificate_expiry_timestamp_seconds",
		Help: "When the first of the certificates that proxies show ends, in seconds since 1970; 0 while no pair runs. Only the leader reports it.",
	})
	certificateLifetime = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tunnel_certificate_lifetime_seconds",
		Help: "TUNNEL_CERTIFICATE_LIFETIME, after two thirds of which certificates are renewed.",
	})
	streams = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tunnel_streams_total",
		Help: "Streams whose two ends were joined.",
	})
	streamFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tunnel_stream_failures_total",
		Help: "Connections of clients that were closed because their stream could not be made, by reason.",
	}, []string{"reason"})
	bytesCarried = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tunnel_bytes_total",
		Help: "Bytes of payload, by direction.",
	}, []string{"direction"})
)

func init() {
	metrics.Registry.MustRegister(streamsActive, tunnelsNow, certificateExpiry, certificateLifetime, streams, streamFailures, bytesCarried)
	// Series that begin at 0 tell of the first failure.
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

// tunnelStates are those that a tunnel may be in.
var tunnelStates = []tunnelv1.TunnelState{tunnelv1.TunnelReady, tunnelv1.TunnelFailed}

func reasonLabel(name string) string {
	return strings.ToLower(strings.TrimPrefix(name, "STREAM_ERROR_"))
}

// traffic sums up what goes through all pairs. What a proxy counts begins anew with each
// process, and these sums do not.
type traffic struct {
	*Reconciler
	mu   sync.Mutex
	seen map[types.UID]sum
}

// sum is what one server proxy has counted.
type sum struct {
	instance                    string
	streams, toServer, toClient uint64
	failures                    map[string]uint64
	active                      uint64
	// notAfter is when the first certificate of the pair ends, in seconds since 1970.
	notAfter int64
	known    bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader may call proxies.
func (t *traffic) NeedLeaderElection() bool { return true }

// Start asks every pair now and then, until the operator stops.
func (t *traffic) Start(ctx context.Context) error {
	tick := time.NewTicker(trafficPeriod)
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

func (t *traffic) round(ctx context.Context) {
	var all tunnelv1.ContainerNetworkTunnelProxyList
	if err := t.Client.List(ctx, &all, client.DisableReadYourWritesConsistency); err != nil {
		return // only a cache that is shutting down fails
	}
	turns, asked := make(chan struct{}, askedAtOnce), sync.WaitGroup{}
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
		turns <- struct{}{}
		asked.Go(func() {
			defer func() { <-turns }()
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

// totals forgets pairs that do not run any more, and returns of the others how many streams they
// have, and when the first of their certificates ends; 0: nobody knows of one.
func (t *traffic) totals(live map[types.UID]bool) (active uint64, expiry int64) {
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

func (t *traffic) ask(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) {
	keys, known := t.memory.keys(p.UID)
	if !known {
		return // nobody has looked at it yet since the operator started
	}
	address := net.JoinHostPort(p.Status.ServerProxyAddress, strconv.Itoa(int(p.Status.ServerProxyControlPort)))
	caller, err := t.caller(p, address, keys.Controller)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, t.Config.CallTimeout)
	defer cancel()
	listed, err := caller.ListTunnels(ctx, &control.ListTunnelsRequest{})
	if err != nil {
		return // its events tell what is wrong with it
	}
	t.count(p.UID, sumOf(listed))
}

func sumOf(listed *control.ListTunnelsResponse) sum {
	s := sum{instance: listed.GetInstance(), active: listed.GetActiveStreams(), notAfter: listed.GetCertificateNotAfter(), failures: map[string]uint64{}, known: true}
	add := func(some *control.Traffic) {
		s.streams += some.GetStreams()
		s.toServer += some.GetBytesToServer()
		s.toClient += some.GetBytesToClient()
		for _, f := range some.GetFailures() {
			s.failures[reasonLabel(f.GetError().String())] += f.GetCount()
		}
	}
	add(listed.GetDeleted())
	for _, tunnel := range listed.GetTunnels() {
		add(tunnel.GetTraffic())
	}
	return s
}

// count adds what is new since the last time. What a pair carried before this operator knew it
// was counted by the one before.
func (t *traffic) count(uid types.UID, now sum) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.seen[uid]
	t.seen[uid] = now
	if !before.known {
		return
	}
	if before.instance != now.instance {
		before = sum{}
	}
	streams.Add(risen(before.streams, now.streams))
	bytesCarried.WithLabelValues("to_server").Add(risen(before.toServer, now.toServer))
	bytesCarried.WithLabelValues("to_client").Add(risen(before.toClient, now.toClient))
	for reason, n := range now.failures {
		streamFailures.WithLabelValues(reason).Add(risen(before.failures[reason], n))
	}
}

func risen(before, now uint64) float64 {
	if now < before {
		return 0
	}
	return float64(now - before)
}
