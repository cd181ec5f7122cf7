package operator

import "github.com/go-logr/logr"

// A stopping manager releases the lease last, and then logs its loss as an error:
// kubernetes-sigs/controller-runtime#3535. Whether the line appears depends on whether the
// process exits first.
const (
	falseAlarm       = "error received after stop sequence was engaged"
	falseAlarmReason = "leader election lost"
	calmly           = "Left the leader election"
)

// calmLogger is a logger for a manager with leader election. A lease that is lost before
// the manager was stopped is still an error, which the manager returns.
func calmLogger(logger logr.Logger) logr.Logger {
	return logger.WithSink(calmSink{logger.GetSink()})
}

// calmSink is for the log lines of the manager itself: loggers with a name or with values,
// as controllers have, are made by the wrapped sink.
type calmSink struct{ logr.LogSink }

func (s calmSink) Error(err error, msg string, keysAndValues ...any) {
	if msg == falseAlarm && err != nil && err.Error() == falseAlarmReason {
		s.Info(0, calmly)
		return
	}
	s.LogSink.Error(err, msg, keysAndValues...)
}
