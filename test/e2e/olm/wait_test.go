package olm

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"
)

// within is until for where a failure must not end the goroutine: it returns the
// last reason why the condition did not hold.
func within(ctx context.Context, look func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, instanceLimit, true, func(ctx context.Context) (bool, error) {
		last = look(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}
