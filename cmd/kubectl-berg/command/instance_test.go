package command

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// An extension adds to the time that is left, also where spec.until ends the instance first.
func TestLifetimeOfAnInstance(t *testing.T) {
	start := time.Date(2030, 6, 1, 19, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		timeout string
		until   time.Duration
		want    time.Duration
	}{
		"a timeout":         {"1h", 0, time.Hour},
		"an earlier until":  {"1h", 20 * time.Minute, 20 * time.Minute},
		"a later until":     {"1h", 2 * time.Hour, time.Hour},
		"an until alone":    {"", 20 * time.Minute, 20 * time.Minute},
		"the default alone": {"", 0, 2 * time.Hour},
	} {
		i := &bergv1.ChallengeInstance{Spec: bergv1.ChallengeInstanceSpec{Timeout: tc.timeout}}
		i.Status.StartedAt, i.Status.DefaultTimeout = &metav1.Time{Time: start}, &metav1.Duration{Duration: 2 * time.Hour}
		if tc.until > 0 {
			i.Spec.Until = &metav1.Time{Time: start.Add(tc.until)}
		}
		if got, known := instanceLifetime(i); got != tc.want || !known {
			t.Errorf("%s: %s", name, got)
		}
	}
}
