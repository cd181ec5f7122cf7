package usage

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

// Key names a route: kind, namespace and name.
type Key struct{ Kind, Namespace, Name string }

// maxChallenges limits the series of the metrics: further Challenges are counted as Others.
const maxChallenges = 200

// Others are the Challenges beyond the limit, and routes of no Challenge.
var Others = Challenge{"", "other"}

// Recorder has the use of all routes. It is safe for concurrent use.
type Recorder struct {
	started time.Time

	mu   sync.Mutex
	uses map[Key]*Use
	// ended sums up routes that are deleted, by Challenge. It has an element for each Challenge that has series.
	ended map[Challenge]*sum
}

// sum is the use of all routes of a Challenge.
type sum struct{ total, open, received, sent, last, routes, opened int64 }

func (s *sum) add(u *Use) {
	s.total += u.total.Load()
	s.received += u.received.Load()
	s.sent += u.sent.Load()
	s.last = max(s.last, u.last.Load())
}

// NewRecorder returns a Recorder without routes.
func NewRecorder() *Recorder {
	return &Recorder{started: time.Now(), uses: map[Key]*Use{}, ended: map[Challenge]*sum{Others: {}}}
}

// Use returns the use of a route. Another route of the same name, by its UID, begins without any.
func (r *Recorder) Use(key Key, uid, host string, challenge Challenge) *Use {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.uses[key]; known != nil {
		if known.uid == uid {
			known.challenge = r.bounded(challenge)
			return known
		}
		r.end(key)
	}
	u := &Use{uid: uid, id: gateadmin.ID(host), challenge: r.bounded(challenge), seen: time.Now(), conns: map[*conn]struct{}{}}
	r.uses[key] = u
	return u
}

// bounded returns the Challenge under which a route is counted.
func (r *Recorder) bounded(c Challenge) Challenge {
	switch {
	case c.Name == "":
		return Others
	case r.ended[c] != nil:
	case len(r.ended) > maxChallenges:
		return Others
	default:
		r.ended[c] = &sum{}
	}
	return c
}

// End forgets a route that is deleted, and closes its connections to pods.
func (r *Recorder) End(key Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(key)
}

// The counts of the route are added to those of its Challenge, so a counter of Prometheus never falls.
func (r *Recorder) end(key Key) {
	if u := r.uses[key]; u != nil {
		u.end()
		r.ended[u.challenge].add(u)
		delete(r.uses, key)
	}
}

// Report returns the routes that are new or were used after a time, or are being used.
func (r *Recorder) Report(after time.Time) gateadmin.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := gateadmin.Report{Since: r.started.UTC(), Hosts: []gateadmin.HostUse{}}
	for _, u := range r.uses {
		first, last, open := at(u.first.Load()), at(u.last.Load()), u.open.Load()
		if open == 0 && last.Before(after) && u.seen.Before(after) {
			continue
		}
		report.Hosts = append(report.Hosts, gateadmin.HostUse{ID: u.id, First: first, Last: last, Open: open, Bytes: u.received.Load() + u.sent.Load()})
	}
	return report
}

// at returns a time from milliseconds, zero for 0.
func at(milliseconds int64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return time.UnixMilli(milliseconds).UTC()
}

var (
	byChallenge = []string{"challenge_namespace", "challenge"}
	connections = prometheus.NewDesc("berg_gate_challenge_connections_total", "Requests and streams to the instances of a Challenge.", byChallenge, nil)
	open        = prometheus.NewDesc("berg_gate_challenge_open_connections", "Requests and streams that instances of a Challenge serve.", byChallenge, nil)
	bytes       = prometheus.NewDesc("berg_gate_challenge_bytes_total", "Bytes between players and the instances of a Challenge, by direction: from_players or to_players.", append(byChallenge, "direction"), nil)
	last        = prometheus.NewDesc("berg_gate_challenge_last_connection_timestamp_seconds", "When an instance of a Challenge was used last.", byChallenge, nil)
	routes      = prometheus.NewDesc("berg_gate_challenge_routes", "Routes of the instances of a Challenge, by whether players have opened them.", append(byChallenge, "opened"), nil)
)

// Describe describes the metrics.
func (r *Recorder) Describe(all chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{connections, open, bytes, last, routes} {
		all <- desc
	}
}

// Collect collects the metrics.
func (r *Recorder) Collect(all chan<- prometheus.Metric) {
	for c, s := range r.sums() {
		send := func(desc *prometheus.Desc, kind prometheus.ValueType, value int64, labels ...string) {
			all <- prometheus.MustNewConstMetric(desc, kind, float64(value), append([]string{c.Namespace, c.Name}, labels...)...)
		}
		send(connections, prometheus.CounterValue, s.total)
		send(open, prometheus.GaugeValue, s.open)
		send(bytes, prometheus.CounterValue, s.received, "from_players")
		send(bytes, prometheus.CounterValue, s.sent, "to_players")
		send(routes, prometheus.GaugeValue, s.opened, "true")
		send(routes, prometheus.GaugeValue, s.routes-s.opened, "false")
		if s.last > 0 {
			send(last, prometheus.GaugeValue, s.last/int64(time.Second/time.Millisecond))
		}
	}
}

// sums returns the use of each Challenge.
func (r *Recorder) sums() map[Challenge]sum {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := make(map[Challenge]sum, len(r.ended))
	for c, s := range r.ended {
		sums[c] = *s
	}
	for _, u := range r.uses {
		s := sums[u.challenge]
		s.add(u)
		s.open += u.open.Load()
		s.routes++
		if u.first.Load() > 0 {
			s.opened++
		}
		sums[u.challenge] = s
	}
	return sums
}
