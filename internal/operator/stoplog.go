package operator

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// WithQuietStop returns a logger that reports no error of a request or a wait that ended because ctx did: a process can be
// stopped at any moment, also while its caches fill. Such a line is logged with more verbosity.
//
// A stopping manager releases the lease last, and may then log its loss as an error: kubernetes-sigs/controller-runtime#3535. A lease
// that is lost before the manager was stopped is still an error.
func WithQuietStop(ctx context.Context, to logr.Logger) logr.Logger {
	return to.WithSink(stopSink{to.GetSink(), ctx})
}

type stopSink struct {
	logr.LogSink
	stop context.Context //nolint:containedctx // it ends with the process, as the sink does
}

func (s stopSink) Error(err error, message string, values ...any) {
	released := message == afterStop && err != nil && err.Error() == leaseLost
	if s.stop.Err() != nil && (released || errors.Is(err, context.Canceled) || apierrors.IsTimeout(err) || message == informerFailed) {
		if s.Enabled(1) {
			s.Info(1, message, append(values, "stopped", err)...)
		}
		return
	}
	s.LogSink.Error(err, message, values...)
}

// Lines of controller-runtime: for a cache that does not fill, as when the process is stopped, and for an error of a manager that stops.
const (
	informerFailed = "failed to get informer from cache"
	afterStop      = "error received after stop sequence was engaged"
	leaseLost      = "leader election lost"
)

func (s stopSink) WithValues(values ...any) logr.LogSink {
	return stopSink{s.LogSink.WithValues(values...), s.stop}
}

func (s stopSink) WithName(name string) logr.LogSink {
	return stopSink{s.LogSink.WithName(name), s.stop}
}

// WithCallDepth keeps the line of the caller in the log.
func (s stopSink) WithCallDepth(depth int) logr.LogSink {
	if deep, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return stopSink{deep.WithCallDepth(depth), s.stop}
	}
	return s
}
