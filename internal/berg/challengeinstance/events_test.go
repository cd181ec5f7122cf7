package challengeinstance

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/admission"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

func TestEventsTellTheSource(t *testing.T) {
	fake := events.NewFakeRecorder(3)
	r := WithSource(fake)
	ofTeam := testInstance(func(i *bergv1.ChallengeInstance) { i.Labels = map[string]string{bergv1.LabelSource: "42"} })
	for want, write := range map[string]func(){
		"Normal A done (source 42)": func() { r.Eventf(ofTeam, nil, "Normal", "A", "Do", "%s", "done") },
		"Normal A done":             func() { r.Eventf(testInstance(), nil, "Normal", "A", "Do", "%s", "done") },
		"Normal A done too":         func() { r.Eventf(&bergv1.Challenge{}, nil, "Normal", "A", "Do", "done %s", "too") },
	} {
		write()
		if got := <-fake.Events; got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
	r.Eventf(ofTeam, nil, "Warning", "A", "Do", "%s", strings.Repeat("long ", 1000))
	if got := <-fake.Events; len(got) > conditions.MaxNote+len("Warning A ") || !strings.HasSuffix(got, " (source 42)") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestTerminationsAreReportedOnceAndForgotten(t *testing.T) {
	var e terminations
	i, other := testInstance(), testInstance(func(i *bergv1.ChallengeInstance) { i.UID = "another of that name" })
	if e.reason(i) != "" || len(e.all) != 0 {
		t.Error("an entry exists for an instance that is not terminating")
	}
	e.setReason(i, bergv1.TerminationTimeout)
	if e.reason(i) != bergv1.TerminationTimeout || e.reason(other) != "" {
		t.Error("the reason is that of the one that was asked for")
	}
	e.setReason(i, bergv1.TerminationTimeout)
	if !e.isFirstReport(i, bergv1.PhaseTerminating) || e.isFirstReport(i, bergv1.PhaseTerminating) {
		t.Error("the first phase is not reported exactly once")
	}
	if !e.isFirstReport(i, bergv1.PhaseTerminated) || e.isFirstReport(i, bergv1.PhaseTerminated) || e.isFirstReport(i, bergv1.PhaseTerminating) {
		t.Error("the last phase is not reported exactly once, or another one after it")
	}
	if e.reason(i) != bergv1.TerminationTimeout {
		t.Error("the reason is lost")
	}
	e.forget(client.ObjectKeyFromObject(i))
	if len(e.all) != 0 {
		t.Error("it is not forgotten")
	}
	e.setReason(i, bergv1.TerminationTimeout)
	e.setReason(i, "")
	if len(e.all) != 0 {
		t.Error("of an end that was refused, something stays")
	}
}

// After a restart nothing but the times is left of a reason that was not written.
func TestApparentReason(t *testing.T) {
	deleted := func(after time.Duration) func(*bergv1.ChallengeInstance) {
		return func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon.Add(after)} }
	}
	r := &Reconciler{Config: config.Berg{Challenge: config.Challenge{Timeout: time.Hour}}}
	for name, tc := range map[string]struct {
		instance *bergv1.ChallengeInstance
		want     bergv1.TerminationReason
	}{
		"deleted while it lived":   {testInstance(started, deleted(time.Minute)), bergv1.TerminationUserRequest},
		"at its expiry":            {testInstance(started, deleted(time.Hour)), bergv1.TerminationTimeout},
		"long after it":            {testInstance(started, deleted(9*time.Hour)), bergv1.TerminationTimeout},
		"after it, but extended":   {testInstance(started, timeout("2h"), deleted(90*time.Minute)), bergv1.TerminationUserRequest},
		"deleted before its start": {testInstance(deleted(9 * time.Hour)), bergv1.TerminationUserRequest},
	} {
		if got := r.apparentReason(t.Context(), tc.instance); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	ended := testInstance(started, deleted(time.Minute))
	r.terminations.setReason(ended, bergv1.TerminationAdmin)
	if got := r.apparentReason(t.Context(), ended); got != bergv1.TerminationAdmin {
		t.Errorf("what is remembered goes first: %s", got)
	}
}

func TestQueuedInstancesReportNoProblem(t *testing.T) {
	cfg := config.Challenge{MaxInstances: 2, StartDeadline: time.Minute, Timeout: time.Hour}
	c := candidate("a", 0)
	status.Compute(status.Outcome{Observed: status.Observed{Candidate: c}, Problem: status.WaitProblem(admission.Decision{Reason: admission.Full}, cfg)}, cfg, noon)
	if news := newProblems(nil, c.Instance.Status.Conditions); len(news) > 0 {
		t.Errorf("reported as problems: %v", news)
	}
}

func TestShortenedMessagesContainNoPartOfTheFlag(t *testing.T) {
	const flag = "flag{0123456789abcdef}"
	for before := 0; before < 2*conditions.MaxMessage; before += 3 {
		instance := testInstance(func(i *bergv1.ChallengeInstance) { i.Spec.Flag = flag })
		status.SetConditions(instance, noon, status.Condition("A", "False", "B", strings.Repeat("x ", before/2)+flag+strings.Repeat(" y", 2*conditions.MaxMessage)))
		c := instance.Status.Conditions[0]
		for where, text := range map[string]string{"condition": c.Message, "event": conditions.Note(note(instance, c))} {
			if strings.Contains(text, flag[:8]) || strings.Contains(text, flag[len(flag)-8:]) {
				t.Fatalf("%s, after %d: %s", where, before, text)
			}
		}
	}
}
