package livepage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

func lease(renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}}}
}

// Forty players behind one wrong image are one problem, and two that crash are another one. What to do is written there.
func TestProblemsAreOneLineForEachChallengeAndCause(t *testing.T) {
	b, server := served(t, clocktesting.NewFakeClock(begin.Add(time.Minute)))
	const players = 60
	for n := range players {
		i := failing(anInstance(fmt.Sprintf("shop-%02d", n), bergv1.PhaseStarting, bergv1.CauseImageUnavailable), `image "shop:typo" not found`)
		i.Spec.ChallengeRef.Name = "shop"
		put(t, b, i)
	}
	for n := range 2 {
		put(t, b, failing(anInstance(fmt.Sprint("pwn-", n), bergv1.PhaseStarting, bergv1.CauseCrashing), "container web ended with exit code 1"))
	}
	put(t, b, anInstance("fine", bergv1.PhaseRunning, ""))
	v := b.Read("berg", 0)
	if len(v.Problems) != 2 || v.Problems[0].Count != players || v.Problems[1].Count != 2 || len(v.Problems[0].Rows) != maxFolded || v.Problems[0].More() != players-maxFolded {
		t.Fatalf("%+v", v.Problems)
	}
	_, _, page := get(t, server.URL+"/live/")
	_, rest, _ := strings.Cut(page, `<div id="problems">`)
	problems, _, _ := strings.Cut(rest, `<div id="summary">`)
	for _, want := range []string{
		"60 instances", "An image cannot be pulled. image &#34;shop:typo&#34; not found", "kubectl berg rollout shop -n berg", "and 10 more", "<details id=",
		"kubectl berg logs pwn-0 --previous -n berg",
	} {
		if strings.Count(problems, want) != 1 && want != "<details id=" {
			t.Errorf("%q is there %d times", want, strings.Count(problems, want))
		}
	}
	if len(problems) > 12_000 {
		t.Errorf("the problems take %d bytes", len(problems))
	}
	if !strings.Contains(page, "<b class=\"problem\">62</b> need a person") || strings.Contains(page, "</b> failed") {
		t.Error("the counts do not say that 62 need a person, or say that none failed")
	}
	first := v.Problems[0].ID
	put(t, b, anInstance("more", bergv1.PhaseRunning, ""))
	if again := b.Read("berg", 0).Problems[0].ID; again != first {
		t.Errorf("its element is %s and then %s: it would fold", first, again)
	}
}

// A start that takes longer than its alert allows turns red, without a change of the instance.
func TestWhatNeverBecomesReadyIsAProblem(t *testing.T) {
	clock := clocktesting.NewFakeClock(begin.Add(time.Minute))
	b, server := served(t, clock)
	i := anInstance("slow", bergv1.PhaseStarting, bergv1.CauseNotReadyYet)
	i.Status.StartedAt = &metav1.Time{Time: begin}
	put(t, b, i)
	if _, _, page := get(t, server.URL+"/live/"); strings.Contains(page, "does not become ready") || strings.Contains(page, `class="problem"`) {
		t.Error("a start is a problem")
	}
	clock.SetTime(begin.Add(view.StuckStarting.After + time.Second))
	_, _, page := get(t, server.URL+"/live/")
	for _, want := range []string{"It does not become ready.</p>", "kubectl berg why slow -n berg", `<span class="problem">It is starting.</span>`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// A dead operator is the first line, as soon as its lease is stale or instances are not looked at.
func TestADeadOperatorIsTheFirstLine(t *testing.T) {
	clock := clocktesting.NewFakeClock(begin)
	b, server := served(t, clock)
	alerts := func() string {
		t.Helper()
		_, _, page := get(t, server.URL+"/live/")
		_, rest, _ := strings.Cut(page, "<main>")
		text, _, found := strings.Cut(rest, `<form id="search"`)
		if !found {
			t.Fatal(page)
		}
		return text
	}
	b.seeOperator(lease(begin.Add(-time.Hour))) // the clock of its node is late
	for range 10 {
		clock.Step(10 * time.Second)
		b.seeOperator(lease(clock.Now().Add(-time.Hour)))
		if got := alerts(); strings.Contains(got, "operator") {
			t.Fatalf("while it renews: %s", got)
		}
	}
	clock.Step(silence + time.Second)
	if got := alerts(); !strings.Contains(got, "The operator is not running") || !strings.Contains(got, "kubectl get pods -n berg-operator-system") {
		t.Errorf("a stale lease: %s", got)
	}
	b.seeOperator(lease(clock.Now()))
	if got := alerts(); strings.Contains(got, "operator") {
		t.Errorf("it runs again: %s", got)
	}

	recent := anInstance("new", "", "")
	recent.CreationTimestamp = metav1.Time{Time: clock.Now()}
	put(t, b, recent)
	if got := alerts(); strings.Contains(got, "operator") {
		t.Errorf("a new instance: %s", got)
	}
	clock.Step(silence / 2)
	b.seeOperator(lease(clock.Now()))
	clock.Step(silence/2 + time.Second)
	if got := alerts(); !strings.Contains(got, "The operator does not answer: 1 instance without a status for more than 30 s") {
		t.Errorf("an instance without a status: %s", got)
	}
}

// The limits are those with which the operator runs, and follow it.
func TestLimitsComeFromTheOperator(t *testing.T) {
	b, _ := served(t, clocktesting.NewFakeClock(begin))
	web := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "web", Generation: 1}}
	web.Spec.Containers = []bergv1.Container{{Hostname: "web"}}
	storeTrimmed(t, b.seeOther, web)
	deployment := func(env ...corev1.EnvVar) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "berg-operator-system", Name: "berg-operator-controller-manager"}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Env: env}}
		return d
	}
	limits := func() (instances float64, cpu string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.capacityNow("berg").Instances.Total, b.challenges["berg/web"].Shape.CPU.String()
	}
	if n, cpu := limits(); n != 0 || cpu != "100m" {
		t.Errorf("by default: %v, %s", n, cpu)
	}
	storeTrimmed(t, b.seeOperator, deployment(
		corev1.EnvVar{Name: "CHALLENGE_MAX_INSTANCES", Value: "20"}, corev1.EnvVar{Name: "CHALLENGE_CPU_REQUEST", Value: "500m"}, corev1.EnvVar{Name: "PASSWORD", Value: theFlag}))
	if n, cpu := limits(); n != 20 || cpu != "500m" {
		t.Errorf("as set: %v, %s", n, cpu)
	}
	withOptions := deployment(corev1.EnvVar{Name: "CHALLENGE_MAX_INSTANCES", Value: "20"})
	withOptions.Spec.Template.Spec.Containers[0].Args = []string{"--leader-elect", "--challenge-max-instances=30", "--challenge-cpu-request", "200m", "--flag=" + theFlag}
	storeTrimmed(t, b.seeOperator, withOptions)
	if n, cpu := limits(); n != 30 || cpu != "200m" {
		t.Errorf("as options: %v, %s", n, cpu)
	}
	if kept, err := trim(withOptions); err != nil || strings.Contains(fmt.Sprintf("%+v", kept), "not for the wall") {
		t.Errorf("other options are kept: %v, %+v", err, kept)
	}
	storeTrimmed(t, b.seeOperator, deployment(corev1.EnvVar{Name: "CHALLENGE_MAX_INSTANCES", Value: "20"}))
	storeTrimmed(t, b.seeOperator, deployment(corev1.EnvVar{Name: "CHALLENGE_MAX_INSTANCES", Value: "many"}))
	if n, _ := limits(); n != 20 {
		t.Errorf("a wrong value, with which the operator does not start: %v", n)
	}
	storeTrimmed(t, b.seeOperator, deployment())
	if n, cpu := limits(); n != 0 || cpu != "100m" {
		t.Errorf("unset: %v, %s", n, cpu)
	}
	kept, err := trim(deployment(corev1.EnvVar{Name: "PASSWORD", Value: theFlag}))
	if err != nil || strings.Contains(fmt.Sprintf("%+v", kept), "not for the wall") {
		t.Errorf("other variables are kept: %v, %+v", err, kept)
	}
}

func TestTeamsAreLinked(t *testing.T) {
	b, server := served(t, clocktesting.NewFakeClock(begin.Add(time.Minute)))
	i := anInstance("a", bergv1.PhaseRunning, "")
	i.Labels = map[string]string{bergv1.LabelSource: "7"}
	put(t, b, i)
	put(t, b, anInstance("without-a-source", bergv1.PhaseRunning, ""))
	_, _, page := get(t, server.URL+"/live/")
	if !strings.Contains(page, `<a href="https://ctf.example.com/teams/7" rel="noreferrer">7</a>`) || strings.Count(page, "ctf.example.com") != 1 {
		t.Error("the team is not linked, or more than the team is")
	}
	if _, _, page := get(t, server.URL+"/live/instances/a"); !strings.Contains(page, "https://ctf.example.com/teams/7") {
		t.Error("its page has no link")
	}
}

// Red is for what is wrong: most conditions are False for a moment of every start.
func TestTheTimelineIsRedForProblemsAlone(t *testing.T) {
	r := &view.Row{Created: begin}
	condition := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.Time{Time: begin}}
	}
	r.Conditions = []metav1.Condition{
		condition(bergv1.ConditionNamespaceDeleted, bergv1.ReasonLive), condition(bergv1.ConditionPodsReady, bergv1.ReasonStarting),
		condition("Ready", "Starting"), condition(bergv1.ConditionNamespaceDeleted, bergv1.ReasonDeletionBlocked), condition(bergv1.ConditionPodsReady, "CrashLoopBackOff"),
	}
	events := []Event{{Reason: bergv1.ReasonStarting, Warning: true}, {Reason: "FailedScheduling", Warning: true}, {Reason: "Pulled"}}
	var bad []string
	for _, m := range timeline(r, events) {
		if m.Bad {
			bad = append(bad, m.What+" "+m.Detail)
		}
	}
	if got := strings.Join(bad, ", "); got != "Event FailedScheduling , NamespaceDeleted is False DeletionBlocked, PodsReady is False CrashLoopBackOff" {
		t.Errorf("%s", got)
	}
}
