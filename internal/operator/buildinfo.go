package operator

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var buildInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "berg_operator_build_info",
	Help: "Always 1; its labels say what this replica was built from.",
}, []string{"version", "goversion"})

func init() { metrics.Registry.MustRegister(buildInfo) }

// AnnounceVersion shows the version of the program in the metrics.
func AnnounceVersion(version string) {
	buildInfo.WithLabelValues(version, runtime.Version()).Set(1)
}
