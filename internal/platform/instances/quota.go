package instances

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// isQuota reports whether a quota of the cluster refuses an object. It counts as a limit, which platforms show.
func isQuota(err error) bool {
	meaning, known := refusal.Explain(err.Error())
	return known && meaning.Kind == refusal.Quota && apierrors.IsForbidden(err)
}
