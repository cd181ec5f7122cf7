package retention

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

var (
	imagesDeleted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kibaship_images_deleted_total",
		Help: "Images of earlier builds that were deleted from the registry.",
	})
	reconcileMetrics = reconcile.NewMetrics("kibaship_images", "Clean-ups of images that failed and are tried again.")
)

func init() { metrics.Registry.MustRegister(imagesDeleted, reconcileMetrics) }
