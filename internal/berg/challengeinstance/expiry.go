package challengeinstance

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

// lifetime is how long an instance lives: what it says, else the default, and
// never more than the cap.
func lifetime(instance *bergv1.ChallengeInstance, cfg config.Challenge) time.Duration {
	d := cfg.Timeout
	// The schema admits only what parses; the default stands in for the rest.
	if parsed, err := time.ParseDuration(instance.Spec.Timeout); err == nil && parsed > 0 {
		d = parsed
	}
	if cfg.MaxLifetime > 0 {
		d = min(d, cfg.MaxLifetime)
	}
	return d
}

// setExpiry keeps expiresAt at the start plus the lifetime, whose parts may
// change while the instance lives.
func setExpiry(instance *bergv1.ChallengeInstance, cfg config.Challenge) {
	if instance.Status.StartedAt == nil {
		return
	}
	instance.Status.ExpiresAt = &metav1.Time{Time: instance.Status.StartedAt.Add(lifetime(instance, cfg))}
}

// dueTermination returns why a live instance must end now, "" if it need not.
func dueTermination(instance *bergv1.ChallengeInstance, cfg config.Challenge, now time.Time) bergv1.TerminationReason {
	if instance.Spec.TerminationReason != "" {
		return instance.Spec.TerminationReason
	}
	if started := instance.Status.StartedAt; started != nil && !now.Before(started.Add(lifetime(instance, cfg))) {
		return bergv1.TerminationTimeout
	}
	return ""
}

// wakeUp is how long it is until time alone changes something: the expiry, or
// the start deadline if that comes first. Zero means never.
func wakeUp(instance *bergv1.ChallengeInstance, cfg config.Challenge, now time.Time) time.Duration {
	var next time.Duration
	consider := func(t time.Time) {
		if d := t.Sub(now); d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	if t := instance.Status.ExpiresAt; t != nil {
		consider(t.Time)
	}
	if t := startDeadline(instance, cfg); t != nil {
		consider(*t)
	}
	return next
}
