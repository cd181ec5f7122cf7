package project

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/identity"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// grantAttempts is the number of attempts of a write that a new binding allows: the API server
// authorises from a cache that lags behind the binding.
const grantAttempts = 9

// granted makes a step wait until the API server knows the binding that allows it.
func granted(step apply.Step) apply.Step {
	step.Write = func(ctx context.Context, w apply.Writer, owner ownership.Owner, desired client.Object) (live client.Object, err error) {
		err = identity.WhenGranted(ctx, grantAttempts, func() error {
			live, err = apply.Apply(ctx, w, owner, desired)
			return err
		})
		return live, err
	}
	return step
}
