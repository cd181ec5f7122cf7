package identity

import (
	"context"
	"errors"
	"time"

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
		if LacksRight(last) {
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return last
	}
	return err
}

// LacksRight distinguishes a missing right from other refusals with the same code, which have a cause: a namespace that is being
// deleted forbids creations, and an admission policy refuses. Trying again would not help.
func LacksRight(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || len(details.Causes) == 0
}
