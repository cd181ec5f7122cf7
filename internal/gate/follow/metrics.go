package follow

import "github.com/prometheus/client_golang/prometheus"

var (
	routesDesc = prometheus.NewDesc("berg_gate_routes", "Routes of the Gateways that are served.", nil, nil)
	expiryDesc = prometheus.NewDesc("berg_gate_certificate_expiry_timestamp_seconds",
		"When a certificate that a Gateway names expires, as seconds since 1970. 0: there is none, or it cannot be read.", []string{"namespace", "secret"}, nil)
)

// Describe names the metrics of the State.
func (s *State) Describe(descs chan<- *prometheus.Desc) {
	descs <- routesDesc
	descs <- expiryDesc
}

// Collect reads the metrics of the State.
func (s *State) Collect(values chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	attached := 0
	for _, route := range s.routes {
		if len(route.Parents) > 0 {
			attached++
		}
	}
	values <- prometheus.MustNewConstMetric(routesDesc, prometheus.GaugeValue, float64(attached))
	expiries := map[[2]string]float64{}
	for name := range s.compiled {
		for _, secret := range certificateRefs(s.gateways[name]) {
			expiry := 0.0
			if c := s.certificates[secret].value; c != nil && c.Leaf != nil {
				expiry = float64(c.Leaf.NotAfter.Unix())
			}
			expiries[[2]string{secret.Namespace, secret.Name}] = expiry
		}
	}
	for labels, expiry := range expiries {
		values <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, expiry, labels[:]...)
	}
}
