package isolation

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var verified = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "berg_isolation_verified",
	Help: "1 when the last check found that network policies are enforced, 0 when they are not. Absent when there was no check, or it came to no result.",
}, nil)

func init() { metrics.Registry.MustRegister(verified) }

func measure(v Result) {
	switch v.Status {
	case metav1.ConditionTrue:
		verified.WithLabelValues().Set(1)
	case metav1.ConditionFalse:
		verified.WithLabelValues().Set(0)
	default:
		verified.Reset()
	}
}
