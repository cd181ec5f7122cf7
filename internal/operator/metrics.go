package operator

import (
	"context"
	"errors"
	"net/url"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// client-go accepts only the first registration of metrics. A package of Cilium, which
// comes with its types, registers before controller-runtime, and no request would be
// counted. So the metrics are set here, after both.
func init() {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total",
		Help: "Number of HTTP requests, partitioned by status code, method, and host.",
	}, []string{"code", "method", "host"})
	var registered prometheus.AlreadyRegisteredError // by controller-runtime, under this name
	switch err := metrics.Registry.Register(requests); {
	case errors.As(err, &registered):
		requests = registered.ExistingCollector.(*prometheus.CounterVec)
	case err != nil:
		panic(err)
	}
	clientmetrics.RequestResult = requestResult{requests}

	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "rest_client_request_duration_seconds",
		Help:    "Request latency in seconds. Broken down by verb and host.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
	}, []string{"verb", "host"})
	metrics.Registry.MustRegister(latency)
	clientmetrics.RequestLatency = requestLatency{latency}
}

type requestResult struct{ requests *prometheus.CounterVec }

func (r requestResult) Increment(_ context.Context, code, method, host string) {
	r.requests.WithLabelValues(code, method, host).Inc()
}

type requestLatency struct{ seconds *prometheus.HistogramVec }

func (r requestLatency) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	r.seconds.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

var buildInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "berg_operator_build_info",
	Help: "Always 1. The labels are the version and build information of this replica.",
}, []string{"version", "goversion"})

func init() { metrics.Registry.MustRegister(buildInfo) }

// AnnounceVersion exports the version of the program as a metric.
func AnnounceVersion(version string) {
	buildInfo.WithLabelValues(version, runtime.Version()).Set(1)
}
