package view

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// The page turns red when the alert fires.
func TestThresholdsAreThoseOfTheAlerts(t *testing.T) {
	rules, err := os.ReadFile("../../../config/berg/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, threshold := range Thresholds {
		rule := regexp.MustCompile(`(?s)alert: ` + threshold.Alert + `\n\s+expr: [^\n]* > (\d+)\n`).FindSubmatch(rules)
		if rule == nil || string(rule[1]) != fmt.Sprint(int(threshold.After.Seconds())) {
			t.Errorf("%s: %s, the alert has %q", threshold.Alert, threshold.After, rule)
		}
	}
}

func TestOverdue(t *testing.T) {
	began := time.Date(2030, 6, 1, 19, 0, 0, 0, time.UTC)
	at := &metav1.Time{Time: began}
	starting := func(i *bergv1.ChallengeInstance) { i.Status.Phase, i.Status.StartedAt = bergv1.PhaseStarting, at }
	for name, tc := range map[string]struct {
		change func(*bergv1.ChallengeInstance)
		after  time.Duration
		want   string
	}{
		"starts":                     {starting, 9 * time.Minute, ""},
		"starts for long":            {starting, 11 * time.Minute, StuckStarting.Alert},
		"was never seen":             {func(*bergv1.ChallengeInstance) {}, 11 * time.Minute, StuckStarting.Alert},
		"runs":                       {func(i *bergv1.ChallengeInstance) { i.Status.Phase, i.Status.StartedAt = bergv1.PhaseRunning, at }, 24 * time.Hour, ""},
		"waits":                      {func(i *bergv1.ChallengeInstance) { i.Status.Cause = bergv1.CauseQueued }, 14 * time.Minute, ""},
		"waits for long":             {func(i *bergv1.ChallengeInstance) { i.Status.Cause = bergv1.CauseQueued }, 16 * time.Minute, StuckQueued.Alert},
		"is deleted for long":        {func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = at }, 11 * time.Minute, StuckTerminating.Alert},
		"is about to be deleted":     {func(i *bergv1.ChallengeInstance) { i.Spec.TerminationReason = bergv1.TerminationUserRequest }, 11 * time.Minute, ""},
		"failed, which is a problem": {func(i *bergv1.ChallengeInstance) { i.Status.Phase = bergv1.PhaseFailed }, time.Hour, ""},
	} {
		i := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at}}
		tc.change(i)
		r := NewRow(i)
		got := ""
		if late := r.Overdue(began.Add(tc.after)); late != nil {
			got = late.Alert
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Red is for what is wrong, not for a start.
func TestStartsShowNoProblem(t *testing.T) {
	for reason, want := range map[Reason]bool{
		bergv1.ReasonStarting: true, bergv1.ReasonPodsNotReady: true, bergv1.ReasonLive: true, bergv1.ReasonNotNeeded: true, bergv1.ReasonCreating: true,
		"CrashLoopBackOff": false, bergv1.ReasonDeletionBlocked: false, bergv1.ReasonWriteFailed: false, "FailedScheduling": false,
	} {
		if got := reason.IsNormal(); got != want {
			t.Errorf("%s: %t", reason, got)
		}
	}
}
