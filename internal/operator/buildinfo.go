package operator

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var buildInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "berg_operator_build_info",
	Help: "Always 1. The labels are the version and build information of this replica.",
}, []string{"version", "goversion"})

func init() { metrics.Registry.MustRegister(buildInfo) }

// AnnounceVersion exports the version of the program as a metric.
func AnnounceVersion(version string) {
	buildInfo.WithLabelValues(version, runtime.Version()).Set(1)
}
