package frontend

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the frontend. Their labels are bounded.
type Metrics struct {
	refusedConnections *prometheus.CounterVec
	openConnections    prometheus.Gauge
	unansweredRequests prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		refusedConnections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berg_gate_refused_connections_total",
			Help: "Connections and requests that were refused, by reason: the limit in total, of an address or of a host, or an unknown server name.",
		}, []string{"reason"}),
		openConnections:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "berg_gate_open_connections", Help: "Requests and streams that pods serve."}),
		unansweredRequests: prometheus.NewCounter(prometheus.CounterOpts{Name: "berg_gate_unanswered_total", Help: "Requests and streams for which no ready pod accepted a connection."}),
	}
	registry.MustRegister(m.refusedConnections, m.openConnections, m.unansweredRequests)
	return m
}

func (m *Metrics) refused(reason string) { m.refusedConnections.WithLabelValues(reason).Inc() }

func (m *Metrics) unanswered() { m.unansweredRequests.Inc() }

// opened counts a request or stream of a host, until the function that it returns is called.
func (m *Metrics) opened(string) func() {
	m.openConnections.Inc()
	return m.openConnections.Dec
}
