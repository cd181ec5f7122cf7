package identity

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// WhenGranted calls do, which needs a right that a binding granted a moment ago. It tries again while the right is missing:
// an API server learns of a binding by a watch, and a second API server learns of the binding later than the server that stored it.
// The delays between attempts grow from 5 ms: seven attempts take 0.3 s, nine 1.3 s. It returns the error of the last
// attempt.
func WhenGranted(ctx context.Context, attempts int, do func() error) error {
	var last error
	delays := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: attempts}
	err := wait.ExponentialBackoffWithContext(ctx, delays, func(context.Context) (bool, error) {
		last = do()
		if lacksRight(last) {
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return last
	}
	return err
}

// lacksRight distinguishes a missing right from other refusals with the same code: a namespace that
// is being deleted forbids creations too, and trying again would not help.
func lacksRight(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
