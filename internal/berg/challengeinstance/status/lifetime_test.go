package status

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
)

// An instance is up to date while the settings mean the same for it, however they are written.
func TestSettingsThatMeanTheSameAreCurrent(t *testing.T) {
	load := func(tls string) map[string]string {
		return map[string]string{"CHALLENGE_HTTP_TLS": tls, "CHALLENGE_HTTP_PORT": "8080"}
	}
	secure, auto, plain := testConfig(t, load("true")).Challenge, testConfig(t, load("auto")).Challenge, testConfig(t, load("false")).Challenge
	instance := &bergv1.ChallengeInstance{}
	pinned := manifests.NewSnapshot(&bergv1.Challenge{}, auto)
	if !defaultsCurrent(&pinned, secure, instance) || !defaultsCurrent(&pinned, auto, instance) || defaultsCurrent(&pinned, plain, instance) {
		t.Errorf("HTTPTLS %s: current with true %v, auto %v, false %v", pinned.Defaults.HTTPTLS,
			defaultsCurrent(&pinned, secure, instance), defaultsCurrent(&pinned, auto, instance), defaultsCurrent(&pinned, plain, instance))
	}
}

// The default timeout concerns only instances that have none of their own.
func TestTheDefaultTimeoutIsOneOfTheSettings(t *testing.T) {
	cfg := testConfig(t, nil).Challenge
	pinned := manifests.NewSnapshot(&bergv1.Challenge{}, cfg)
	instance := &bergv1.ChallengeInstance{}
	instance.Status.DefaultTimeout = &metav1.Duration{Duration: cfg.Timeout + time.Hour}
	if defaultsCurrent(&pinned, cfg, instance) {
		t.Error("another default timeout counts as current")
	}
	instance.Spec.Timeout = "30m"
	if !defaultsCurrent(&pinned, cfg, instance) {
		t.Error("the default timeout concerns an instance with its own")
	}
}

// An instance does not outlive spec.until, however long it waited, and it does not wait beyond that time.
func TestUntil(t *testing.T) {
	cfg := testConfig(t, nil).Challenge
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(d)} }
	for name, tc := range map[string]struct {
		started, until, want *metav1.Time
		frozen               bool
	}{
		"waits, without an end":     {nil, nil, nil, false},
		"waits":                     {nil, at(time.Minute), at(time.Minute), false},
		"started long before":       {at(0), at(5 * time.Hour), at(time.Hour), false},
		"started shortly before":    {at(0), at(time.Minute), at(time.Minute), false},
		"started late, after queue": {at(59 * time.Minute), at(time.Hour), at(time.Hour), false},
		"without an end":            {at(0), nil, at(time.Hour), false},
		"frozen":                    {at(0), at(time.Minute), nil, true},
	} {
		i := testInstance(func(i *bergv1.ChallengeInstance) {
			i.Spec.Timeout, i.Spec.Until, i.Status.StartedAt = "1h", tc.until, tc.started
			if tc.frozen {
				i.Annotations = map[string]string{bergv1.AnnotationFrozen: "true"}
			}
		})
		if got := EndsAt(i, cfg); !got.Equal(tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if got := ExpiresAt(i, cfg); tc.started == nil && got != nil {
			t.Errorf("%s: it has the expiry %s before its start", name, got)
		}
		if tc.want == nil {
			continue
		}
		if DueTermination(i, cfg, tc.want.Add(-time.Second)) != "" || DueTermination(i, cfg, tc.want.Time) != bergv1.TerminationTimeout {
			t.Errorf("%s: it is not ended at %s", name, tc.want)
		}
	}
}

// With CHALLENGE_TIMEOUT_FROM=ready the player's time begins when there is something to play with.
func TestTimeoutFromReady(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(d)} }
	for name, tc := range map[string]struct {
		from        config.TimeoutFrom
		ready, want *metav1.Time
	}{
		"from the start":                  {config.TimeoutFromStart, at(4 * time.Minute), at(time.Hour)},
		"not ready yet":                   {config.TimeoutFromReady, nil, at(time.Hour + 10*time.Minute)},
		"ready":                           {config.TimeoutFromReady, at(4 * time.Minute), at(time.Hour + 4*time.Minute)},
		"ready only after the deadline":   {config.TimeoutFromReady, at(20 * time.Minute), at(time.Hour + 20*time.Minute)},
		"from the start, never got ready": {config.TimeoutFromStart, nil, at(time.Hour)},
	} {
		cfg := config.Challenge{Timeout: time.Hour, StartDeadline: 10 * time.Minute, TimeoutFrom: tc.from}
		i := testInstance(started, func(i *bergv1.ChallengeInstance) { i.Status.ReadyAt = tc.ready })
		if got := ExpiresAt(i, cfg); !got.Equal(tc.want) {
			t.Errorf("%s: ends at %v, want %v", name, got, tc.want)
		}
		if i.Status.StartedAt = nil; ExpiresAt(i, cfg) != nil {
			t.Errorf("%s: it has an expiry before its start", name)
		}
	}
}
