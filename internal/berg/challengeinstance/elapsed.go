package challengeinstance

import (
	"time"

	"github.com/google/uuid"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// begun is when the operator started to build an instance, to the millisecond: a UUID of
// version 7 begins with its time, and status.startedAt has whole seconds.
func begun(instance *bergv1.ChallengeInstance) time.Time {
	var start time.Time
	if instance.Status.StartedAt != nil {
		start = instance.Status.StartedAt.Time
	}
	id, err := uuid.Parse(instance.Status.InstanceID)
	if err != nil || id.Version() != 7 {
		return start
	}
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	// An ID of another second was not made by the clock of the start.
	if t := time.UnixMilli(ms); t.Truncate(time.Second).Equal(start) {
		return t
	}
	return start
}

// stampTime makes the time of a UUID of version 7 that of the start.
func stampTime(id *uuid.UUID, now time.Time) {
	ms := now.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
}
