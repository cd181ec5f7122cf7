package operator

import "github.com/go-logr/logr"

// A manager that has been told to stop gives the lease back last, and then reports its
// loss as an error: kubernetes-sigs/controller-runtime#3535. Whether it comes to that
// depends on which is quicker, the log or the exit of the process.
const (
	falseAlarm       = "error received after stop sequence was engaged"
	falseAlarmReason = "leader election lost"
	calmly           = "Takes no part in the leader election any more"
)

// calmLogger is a logger for a manager that takes part in the election. A lease that is
// lost before it was told to stop is still an error, which the manager returns.
func calmLogger(logger logr.Logger) logr.Logger {
	return logger.WithSink(calmSink{logger.GetSink()})
}

// calmSink is for what the manager itself says: a logger with a name or with values, as
// the controllers have, is made by the sink within.
type calmSink struct{ logr.LogSink }

func (s calmSink) Error(err error, msg string, keysAndValues ...any) {
	if msg == falseAlarm && err != nil && err.Error() == falseAlarmReason {
		s.Info(0, calmly)
		return
	}
	s.LogSink.Error(err, msg, keysAndValues...)
}
