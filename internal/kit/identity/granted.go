package identity

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// WhenGranted does what a binding allows that was made a moment ago. It tries again while the right is missing: an API server
// learns of a binding by a watch, and another one than the one which stored it a moment later. The delays between attempts
// grow from 5 ms: seven attempts take 0.3 s, nine 1.3 s. It returns the error of the last attempt.
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

// lacksRight tells a missing right from what else is forbidden.
func lacksRight(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
