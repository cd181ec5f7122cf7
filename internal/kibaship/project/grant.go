package project

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// grantPauses are those between attempts of a write that is not allowed yet: an API server
// learns of a binding by a watch, and another one than that which stored it a moment later.
var grantPauses = wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 9} // 2.5 s together

// granted makes a step wait until the API server knows the binding that allows it.
func granted(step apply.Step) apply.Step {
	step.Write = func(ctx context.Context, w apply.Writer, owner ownership.Owner, desired client.Object) (live client.Object, err error) {
		err = whenGranted(ctx, func() error {
			live, err = apply.Apply(ctx, w, owner, desired)
			return err
		})
		return live, err
	}
	return step
}

// whenGranted does what a binding allows that was made a moment ago.
func whenGranted(ctx context.Context, do func() error) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, grantPauses, func(context.Context) (bool, error) {
		last = do()
		if notGranted(last) {
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) {
		return last
	}
	return err
}

// notGranted tells a lack of rights from what else is forbidden.
func notGranted(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
