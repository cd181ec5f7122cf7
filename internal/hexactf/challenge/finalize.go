package challenge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

const (
	// maxFinalizeDelay is how long the finalization of a challenge may be delayed by requests that delete expired
	// challenges: a thousand of them take less. The garbage collection after a finalization costs the API server
	// more than a deletion.
	maxFinalizeDelay = 5 * time.Second
	// finalizeRetry is when a delayed finalization is tried again.
	finalizeRetry = 250 * time.Millisecond
)

// finalize records that a challenge is being deleted, and stops its pods. It is done when they are gone, the broker
// has acknowledged the messages or KAFKA_DELETE_TIMEOUT is over, and the last message is stored, which is sent when the challenge is
// gone; Kubernetes then deletes the objects that the challenge owns. It needs neither the definition nor any object of the
// challenge. Each step is checked again in each reconciliation, and done again if need be. So a successor continues where this
// process ended.
func (r *Reconciler) finalize(ctx context.Context, c *hexactfv1.Challenge, now time.Time) (done bool, retry time.Duration, err error) {
	known := r.deliveries.get(c)
	isRecorded := c.Status.CurrentStatus.State == hexactfv1.StateTerminating
	// The state is recorded and all messages before the last one have arrived: only pods and the last message are left.
	if isRecorded && (known.Off || len(pendingBefore(&c.Status, known.Acknowledged)) == 0) {
		stopped, err := r.stop(ctx, c)
		if err != nil || !stopped {
			return false, 0, err // no client could read a status that shows the last acknowledgement
		}
		return r.storeEnding(ctx, c, known, now)
	}
	if !isRecorded && r.expiring.Load() > 0 && now.Before(c.DeletionTimestamp.Add(maxFinalizeDelay)) {
		return false, finalizeRetry, nil // all challenges that expire together are deleted before the first is finalized
	}
	before := c.DeepCopy()
	computeTerminating(c, known, now)
	// A status that is refused does not keep the challenge: an event says so.
	if err := r.kind.PatchStatus(ctx, before, c, now); err == nil {
		r.reportDropped(before, c)
	} else if outcome.Classify(err) != outcome.Rejected {
		return false, 0, err
	}
	if !isRecorded {
		r.reportTerminating(before, c, now)
	}
	stopped, err := r.stop(ctx, c)
	if err != nil {
		return false, 0, err
	}
	if !known.Off && len(pendingBefore(&c.Status, known.Acknowledged)) > 0 {
		remaining := brokerTimeout(c, r.deliveries.since(c, now), known, r.Config.Kafka.DeleteTimeout, now)
		if remaining > 0 {
			return false, remaining, nil // the sender triggers the next reconciliation
		}
		r.lose(ctx, c, known, len(pending(&c.Status, known.Acknowledged)))
		return stopped, 0, nil
	}
	if !stopped {
		return false, 0, nil
	}
	return r.storeEnding(ctx, c, known, now)
}

// storeEnding stores the message Deleted of a challenge that is done with all else. An API server that does not take it delays the
// deletion as long as a broker that does not answer. It is the last step. The finalizer goes only after it.
func (r *Reconciler) storeEnding(ctx context.Context, c *hexactfv1.Challenge, known Delivery, now time.Time) (done bool, retry time.Duration, err error) {
	if known.Off {
		return true, 0, nil
	}
	if err := r.endings.store(ctx, c, known.Acknowledged); err != nil {
		known.Problem = err.Error()
		if brokerTimeout(c, r.deliveries.since(c, now), known, r.Config.Kafka.DeleteTimeout, now) > 0 {
			return false, 0, err
		}
		r.lose(ctx, c, known, 1)
	}
	return true, 0, nil
}

// brokerTimeout is how much longer a deletion waits for the broker; began is since when this process waits. After a
// process was killed, its successor waits for the whole timeout again: perhaps the operator did not run, and not the
// broker. But an operator that is killed repeatedly must not keep a challenge for an unlimited time: the first attempt
// that fails twice the timeout or more after the deletion was requested is the last one.
func brokerTimeout(c *hexactfv1.Challenge, began time.Time, known Delivery, timeout time.Duration, now time.Time) time.Duration {
	remaining := began.Add(timeout).Sub(now)
	if known.Problem != "" && c.DeletionTimestamp != nil {
		remaining = min(remaining, c.DeletionTimestamp.Add(2*timeout).Sub(now))
	}
	return remaining
}

// lose reports messages that were given up. They may be lost, or not: a broker that was paused may have received an attempt
// that it did not acknowledge, and stores it later.
func (r *Reconciler) lose(ctx context.Context, c *hexactfv1.Challenge, known Delivery, messages int) {
	if !r.deliveries.lost(c) {
		return // it was reported before an attempt that failed
	}
	lost.Add(float64(messages))
	text := fmt.Sprintf("The broker did not acknowledge %d messages within KAFKA_DELETE_TIMEOUT (%s). They were given up and may be lost: the broker may still deliver what it received. The last of them says that the challenge is deleted. The broker's answer: %s",
		messages, r.Config.Kafka.DeleteTimeout, known.Problem)
	log.FromContext(ctx).Error(errors.New(known.Problem), "messages were given up and may be lost", "messages", messages, "user", c.Status.User, "challengeId", c.Status.ChallengeID)
	reconcile.Warning(r.Events, c, hexactfv1.ReasonMessagesLost, actionDelete, text)
}
