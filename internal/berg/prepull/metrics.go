package prepull

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

var (
	pulls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berg_image_prepull_pulls_total",
		Help: "Pulls of images ahead of players that have ended, by their result: Pulled or PullFailed. An image that was there already does not count unless a pod found that out.",
	}, []string{"result"})
	failures = gauge.NewNumber("berg_image_prepull_failing",
		"How many images are missing on nodes because their last pull ahead of players failed. Only the leader reports it.")
	reconcileMetrics = reconcile.NewMetrics("berg_image_prepull",
		"Reconciliations that failed and are tried again: the API server did not answer, or there is a bug. Pulls that fail do not count.")
	// failing holds the values of failures.
	failing atomic.Int64
)

func init() { metrics.Registry.MustRegister(pulls, failures, reconcileMetrics) }

func seeFailing(context.Context) (float64, error) { return float64(failing.Load()), nil }
