package environment

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

func TestSinceWhenAnEnvironmentIsInItsPhase(t *testing.T) {
	at := func(d time.Duration) metav1.Time { return metav1.Time{Time: noon.Add(-d)} }
	deleted := at(time.Minute)
	ready := []metav1.Condition{{Type: quixv1.ConditionReady, LastTransitionTime: at(time.Hour)}}
	for name, tc := range map[string]struct {
		status  quixv1.EnvironmentStatus
		deleted *metav1.Time
		phase   quixv1.Phase
		since   time.Duration
	}{
		"not yet seen":  {quixv1.EnvironmentStatus{}, nil, quixv1.PhaseInProgress, 2 * time.Hour},
		"ready":         {quixv1.EnvironmentStatus{Phase: quixv1.PhaseReady, Conditions: ready}, nil, quixv1.PhaseReady, time.Hour},
		"failed":        {quixv1.EnvironmentStatus{Phase: quixv1.PhaseFailed, Conditions: ready}, nil, quixv1.PhaseFailed, time.Hour},
		"being deleted": {quixv1.EnvironmentStatus{Phase: quixv1.PhaseDeleting, Conditions: ready}, &deleted, quixv1.PhaseDeleting, time.Minute},
	} {
		env := &quixv1.Environment{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(2 * time.Hour), DeletionTimestamp: tc.deleted}, Status: tc.status}
		if got := inPhase(env); got.Phase != string(tc.phase) || noon.Sub(got.Since) != tc.since {
			t.Errorf("%s: seen as %s for %s, want %s for %s", name, got.Phase, noon.Sub(got.Since), tc.phase, tc.since)
		}
	}
}
