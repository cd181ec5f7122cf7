package record

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The only label is the API server's reason: never an owner, an instance or a flag.
var (
	records = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "berg_challengeinstancerecord_written_total",
		Help: "Records of instances that were written.",
	})
	refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berg_challengeinstancerecord_refused_total",
		Help: "Records of instances that could not be written, by the API server's reason; Crowded: too many waited. Their instances ended without.",
	}, []string{"reason"})
	omitted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "berg_challengeinstancerecord_crowded_total",
		Help: "Instances whose pods and logs were not read, because too many ended at the same time. Their records say so.",
	})
	logsMissing = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "berg_challengeinstancerecord_logs_missing_total",
		Help: "Logs of containers that could not be read in time. Their records say why.",
	})
	swept = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "berg_challengeinstancerecord_swept_total",
		Help: "Records that were deleted because their time was over, or to stay within the limits.",
	})
	captureTimes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "berg_challengeinstancerecord_capture_seconds",
		Help:    "For how long the namespace of an instance that ended waited until its pods and logs were read.",
		Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3},
	})
	stored = gauge.NewNumber("berg_challengeinstancerecord_stored",
		"Records that there are. Only the leader reports it.")
	storedBytes = gauge.NewNumber("berg_challengeinstancerecord_stored_bytes",
		"How large the records that there are were when they were written, all together. Only the leader reports it.")
	reconcileMetrics = reconcile.NewMetrics("berg_challengeinstancerecord",
		"Passes over the records that failed and are tried again: the API server did not answer, or refused to delete one.")
)

// Reasons of our own.
const (
	reasonCrowded  = "Crowded"
	reasonNoAnswer = "NoAnswer"
)

// refusals are the usual reasons. They are reported from the start, with 0: a counter that begins with 1 has not increased, and
// the alert would not know of the first record that is refused.
var refusals = []string{
	reasonCrowded, reasonNoAnswer, string(metav1.StatusReasonForbidden), string(metav1.StatusReasonNotFound), string(metav1.StatusReasonInvalid),
	string(metav1.StatusReasonInternalError), string(metav1.StatusReasonTimeout), string(metav1.StatusReasonTooManyRequests),
	string(metav1.StatusReasonServiceUnavailable), string(metav1.StatusReasonRequestEntityTooLarge),
}

func init() {
	for _, reason := range refusals {
		refused.WithLabelValues(reason)
	}
	metrics.Registry.MustRegister(records, refused, omitted, logsMissing, swept, captureTimes, stored, storedBytes, reconcileMetrics)
}
