package status

import (
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// ExpiresAt returns the expiry of an instance; nil before its start and while it is frozen. It is computed from the times in the
// status alone, so a restart changes nothing.
func ExpiresAt(instance *bergv1.ChallengeInstance, cfg config.Challenge) *metav1.Time {
	if instance.Status.StartedAt == nil || Frozen(instance) {
		return nil
	}
	from := instance.Status.StartedAt
	if later := timeoutFrom(instance, cfg); later != nil {
		from = later
	}
	expiry := &metav1.Time{Time: from.Add(lifetime(instance, cfg))}
	if until := instance.Spec.Until; until != nil && until.Before(expiry) {
		return until.DeepCopy()
	}
	return expiry
}

// timeoutFrom returns when the timeout of a started instance begins; nil for its start.
func timeoutFrom(instance *bergv1.ChallengeInstance, cfg config.Challenge) *metav1.Time {
	s := instance.Status
	switch {
	case cfg.TimeoutFrom != config.TimeoutFromReady || s.StartedAt == nil:
		return nil
	case s.ReadyAt != nil:
		return s.ReadyAt.DeepCopy()
	default:
		return &metav1.Time{Time: s.StartedAt.Add(cfg.StartDeadline)}
	}
}

// EndsAt is ExpiresAt, and before the start spec.until, which also ends an instance that waits.
func EndsAt(instance *bergv1.ChallengeInstance, cfg config.Challenge) *metav1.Time {
	if instance.Status.StartedAt == nil && !Frozen(instance) {
		return instance.Spec.Until
	}
	return ExpiresAt(instance, cfg)
}

// lifetime is spec.timeout, else the default at the start of the instance, and never more than
// CHALLENGE_MAX_LIFETIME. That limit also applies to live instances when it is lowered.
func lifetime(instance *bergv1.ChallengeInstance, cfg config.Challenge) time.Duration {
	d, ok := ownTimeout(instance)
	if !ok {
		d = cfg.Timeout
		if pinned := instance.Status.DefaultTimeout; pinned != nil {
			d = pinned.Duration
		}
	}
	if cfg.MaxLifetime > 0 {
		d = min(d, cfg.MaxLifetime)
	}
	return d
}

// numbersWithUnits is the pattern of spec.timeout.
var numbersWithUnits = regexp.MustCompile(`^([0-9]+h)?([0-9]+m)?([0-9]+s)?$`)

// ownTimeout returns spec.timeout, ok if it is set. The schema admits only durations, but
// resources may have been stored under another schema.
func ownTimeout(instance *bergv1.ChallengeInstance) (d time.Duration, ok bool) {
	text := instance.Spec.Timeout
	d, err := time.ParseDuration(text)
	switch {
	case err == nil:
		return d, d > 0
	case text != "" && numbersWithUnits.MatchString(text):
		return settings.MaxDuration, true // too long for a time.Duration
	default:
		return 0, false
	}
}

// DueTermination returns why a live instance must terminate now, "" if it need not. A reason in the spec comes first, so that it
// is not replaced by the time.
func DueTermination(instance *bergv1.ChallengeInstance, cfg config.Challenge, now time.Time) bergv1.TerminationReason {
	if instance.Spec.TerminationReason != "" {
		return instance.Spec.TerminationReason
	}
	if end := EndsAt(instance, cfg); end != nil && !now.Before(end.Time) {
		return bergv1.TerminationTimeout
	}
	return ""
}

// startDeadline returns the time at which an instance that is not ready becomes Failed; nil for never.
func startDeadline(instance *bergv1.ChallengeInstance, cfg config.Challenge) *time.Time {
	if cfg.StartDeadline == 0 || instance.Status.StartedAt == nil || instance.Status.ReadyAt != nil {
		return nil
	}
	t := instance.Status.StartedAt.Add(cfg.StartDeadline)
	return &t
}

func startDeadlinePassed(instance *bergv1.ChallengeInstance, cfg config.Challenge, now time.Time) bool {
	deadline := startDeadline(instance, cfg)
	return deadline != nil && !now.Before(*deadline)
}

// UntilStartDeadline returns the time until the start deadline changes the status: zero for never, and at least a
// nanosecond if the deadline passed after the status was computed, so that the change is not missed.
func UntilStartDeadline(instance *bergv1.ChallengeInstance, cfg config.Challenge, now time.Time) time.Duration {
	deadline := startDeadline(instance, cfg)
	if deadline == nil || instance.Status.Phase == bergv1.PhaseFailed {
		return 0
	}
	return max(deadline.Sub(now), 1)
}
