package challenge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// life follows one challenge through its states, and checks after each what must always hold.
type life struct {
	*testing.T
	c   *hexactfv1.Challenge
	cfg config.HexaCTF
	now time.Time
	d   Delivery
}

func newLife(t *testing.T) *life {
	return &life{T: t, c: testChallenge(), cfg: testConfig(t, nil), now: noon}
}

// start does what the reconciler does before the first object.
func (l *life) start(definition *hexactfv1.ChallengeDefinition) Observed {
	l.Helper()
	o := Observed{Challenge: l.c, Definition: definition}
	s := newSnapshot(definition, l.cfg)
	raw, err := s.raw()
	if err != nil {
		l.Fatal(err)
	}
	identify(l.c, definition, l.now)
	l.c.Status.DefinitionSnapshot = raw
	l.reconcile(Outcome{Observed: o, Problem: beingBuilt})
	o.Started = s
	return o
}

func (l *life) reconcile(out Outcome) {
	l.Helper()
	before := l.c.Status.DeepCopy()
	out.Delivery = l.d
	ready := computeStatus(out, l.cfg, l.now)
	ready.SetOn(&l.c.Status.Conditions, l.c.Generation, l.now)
	if isAvailable := meta.FindStatusCondition(l.c.Status.Conditions, hexactfv1.ConditionAvailable); out.Problem == nil && ready.Status != isAvailable.Status {
		l.Errorf("Ready is %+v, Available is %+v", ready, isAvailable)
	}
	if l.c.Status.CurrentStatus.State == hexactfv1.StateError && !ready.Stalled {
		l.Errorf("in state Error a person must act: %+v", ready)
	}
	l.check(before)
}

func (l *life) check(before *hexactfv1.ChallengeStatus) {
	l.Helper()
	s := l.c.Status
	if err := conditions.Violations(before.Conditions, s.Conditions, l.c.Generation); err != nil {
		l.Error(err)
	}
	if before.StartedAt != nil && !before.StartedAt.Equal(s.StartedAt) {
		l.Errorf("startedAt moved from %s to %s", before.StartedAt, s.StartedAt)
	}
	if s.CurrentStatus.State == hexactfv1.StateError && s.CurrentStatus.ErrorMsg == "" {
		l.Error("an Error says nothing")
	}
}

func (l *life) is(state hexactfv1.State, messages ...hexactfv1.State) {
	l.Helper()
	if got := l.c.Status.CurrentStatus.State; got != state {
		l.Errorf("state %s, want %s (%s)", got, state, l.c.Status.CurrentStatus.ErrorMsg)
	}
	var got []hexactfv1.State
	if m := l.c.Status.Messages; m != nil {
		for _, message := range m.Outbox {
			got = append(got, message.NewStatus)
		}
	}
	if diff := cmp.Diff(messages, got); diff != "" {
		l.Errorf("the outbox (-want +got):\n%s", diff)
	}
}

func (l *life) shows(conditionType string, status metav1.ConditionStatus, reason string) {
	l.Helper()
	c := meta.FindStatusCondition(l.c.Status.Conditions, conditionType)
	if c == nil || c.Status != status || c.Reason != reason {
		l.Errorf("condition %s is %+v, want %s/%s", conditionType, c, status, reason)
	}
}

func deploymentThat(isAvailable bool) *appsv1.Deployment {
	status := corev1.ConditionFalse
	if isAvailable {
		status = corev1.ConditionTrue
	}
	return &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: status}}}}
}

func TestNormalLife(t *testing.T) {
	l := newLife(t)
	o := l.start(definitionOf(newComponent("web", corev1.ServiceTypeNodePort, 80), newComponent("db", "", 5432)))
	l.is(hexactfv1.StateCreating, hexactfv1.StateCreating)
	l.shows(hexactfv1.ConditionResourcesCreated, metav1.ConditionUnknown, hexactfv1.ReasonCreating)

	// One of two is not enough, and neither are both without the node port.
	l.now = l.now.Add(time.Second)
	o.Deployments = []*appsv1.Deployment{deploymentThat(true), deploymentThat(false)}
	if wait := quietFor(Outcome{Observed: o}, l.cfg, l.now); wait != quietStart-time.Second {
		t.Errorf("a start that is not late is reported after %s", wait)
	}
	if wait := quietFor(Outcome{Observed: o, Endpoint: 30080}, l.cfg, l.now); wait != 0 {
		t.Errorf("an endpoint that is not in the status is reported after %s", wait)
	}
	l.reconcile(Outcome{Observed: o, Endpoint: 30080})
	l.is(hexactfv1.StateCreating, hexactfv1.StateCreating)
	l.shows(hexactfv1.ConditionAvailable, metav1.ConditionFalse, hexactfv1.ReasonStarting)
	if l.c.Status.Endpoint != 30080 {
		t.Errorf("the status shows endpoint %d: the platform does not wait until the challenge runs", l.c.Status.Endpoint)
	}
	if wait := quietFor(Outcome{Observed: o, Endpoint: 30080}, l.cfg, l.now); wait != quietStart-time.Second {
		t.Errorf("a start that is not late is reported after %s", wait)
	}
	o.Deployments[1] = deploymentThat(true)
	l.reconcile(Outcome{Observed: o})
	l.is(hexactfv1.StateCreating, hexactfv1.StateCreating)

	l.reconcile(Outcome{Observed: o, Endpoint: 30080})
	l.is(hexactfv1.StateRunning, hexactfv1.StateCreating, hexactfv1.StateRunning)
	l.shows(hexactfv1.ConditionAvailable, metav1.ConditionTrue, hexactfv1.ReasonAvailable)
	if s := l.c.Status; s.Endpoint != 30080 || s.Messages.Outbox[1].Endpoint != 30080 || s.Messages.Outbox[0].Endpoint != 0 || s.CurrentStatus.ErrorMsg != "" {
		t.Errorf("%+v", s)
	}
	if want := noon.Add(30 * time.Minute); !l.c.Status.ExpiresAt.Time.Equal(want) {
		t.Errorf("expires at %s, want %s", l.c.Status.ExpiresAt, want)
	}

	// A second reconciliation changes nothing.
	before := l.c.DeepCopy()
	l.now = l.now.Add(time.Minute)
	l.reconcile(Outcome{Observed: o, Endpoint: 30080})
	if diff := cmp.Diff(before, l.c); diff != "" {
		t.Errorf("a second reconciliation (-before +after):\n%s", diff)
	}

	l.d.Acknowledged = 1
	l.reconcile(Outcome{Observed: o, Endpoint: 30080})
	l.is(hexactfv1.StateRunning, hexactfv1.StateRunning)
	l.d.Acknowledged = 2
	l.reconcile(Outcome{Observed: o, Endpoint: 30080})
	l.is(hexactfv1.StateRunning)

	// A later problem ends no player's game.
	o.Deployments[0] = deploymentThat(false)
	l.reconcile(Outcome{Observed: o, Endpoint: 30080})
	l.is(hexactfv1.StateRunning)
	l.shows(hexactfv1.ConditionAvailable, metav1.ConditionFalse, hexactfv1.ReasonUnavailable)
	l.reconcile(Outcome{Observed: o, Problem: newProblem(cmpError("quota"), otherOwner{})})
	l.is(hexactfv1.StateRunning)
	o.Deployments[0] = deploymentThat(true)
	// Another node port has a message of its own.
	l.reconcile(Outcome{Observed: o, Endpoint: 30081})
	l.is(hexactfv1.StateRunning, hexactfv1.StateRunning)
	if m := l.c.Status.Messages; m.Outbox[0].Endpoint != 30081 || m.Outbox[0].Sequence != 3 {
		t.Errorf("%+v", m)
	}

	before1 := l.c.Status.DeepCopy()
	computeTerminating(l.c, l.d, l.now)
	l.check(before1)
	l.is(hexactfv1.StateTerminating, hexactfv1.StateRunning, hexactfv1.StateDeleted)
	again := l.c.DeepCopy()
	computeTerminating(l.c, l.d, l.now.Add(time.Second))
	if diff := cmp.Diff(again, l.c); diff != "" {
		t.Errorf("a second reconciliation of the deletion (-before +after):\n%s", diff)
	}
}

type cmpError string

func (e cmpError) Error() string { return string(e) }

func TestDefinitionComesLate(t *testing.T) {
	l := newLife(t)
	missing := Observed{Challenge: l.c}
	l.reconcile(Outcome{Observed: missing, Problem: check(missing, config.HexaCTF{})})
	l.is(hexactfv1.StateError, hexactfv1.StateError)
	l.shows(hexactfv1.ConditionDefinitionFound, metav1.ConditionFalse, hexactfv1.ReasonDefinitionNotFound)
	if wait := requeueAfter(Outcome{Observed: missing, Problem: check(missing, config.HexaCTF{})}, l.cfg, l.now.Add(time.Minute)); wait != 4*time.Minute {
		t.Errorf("requeued after %s", wait)
	}
	l.now = l.now.Add(time.Minute)
	l.start(definitionOf(newComponent("web", "", 80)))
	l.is(hexactfv1.StateCreating, hexactfv1.StateError, hexactfv1.StateCreating)
	if l.c.Status.CurrentStatus.ErrorMsg != "" {
		t.Errorf("it still says %q", l.c.Status.CurrentStatus.ErrorMsg)
	}
	if want := noon.Add(30 * time.Minute); !l.c.Status.ExpiresAt.Time.Equal(want) {
		t.Errorf("expires at %s, want %s: it counts from the first look", l.c.Status.ExpiresAt, want)
	}
}

// The start deadline counts from when there was a valid definition: after ten minutes without one, and if another
// operator has started an hour ago.
func TestStartDeadlineCountsFromTheDefinition(t *testing.T) {
	good := definitionOf(newComponent("web", ""))
	invalid := definitionOf()
	for name, before := range map[string]func(*life){
		"missing until now": func(l *life) {
			missing := Observed{Challenge: l.c}
			l.reconcile(Outcome{Observed: missing, Problem: check(missing, config.HexaCTF{})})
		},
		"bad until now": func(l *life) {
			bad := Observed{Challenge: l.c, Definition: invalid}
			l.reconcile(Outcome{Observed: bad, Problem: check(bad, config.HexaCTF{})})
		},
		"left by another operator": func(l *life) {
			l.c.Status.StartedAt = &metav1.Time{Time: l.now}
			l.c.Status.CurrentStatus.State = hexactfv1.StateError
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			before(l)
			l.now = l.now.Add(10 * time.Minute)
			o := l.start(good)
			if got := l.c.Status.CurrentStatus; got.State != hexactfv1.StateCreating || got.ErrorMsg != "" {
				t.Errorf("at its start it is %+v", got)
			}
			o.Deployments = []*appsv1.Deployment{deploymentThat(false)}
			out := Outcome{Observed: o}
			l.reconcile(out)
			if wait := requeueAfter(out, l.cfg, l.now); wait != 5*time.Minute {
				t.Errorf("requeued after %s", wait)
			}
			if wait := quietFor(out, l.cfg, l.now); wait != quietStart {
				t.Errorf("a start that is not late is reported after %s", wait)
			}
			l.now = l.now.Add(5*time.Minute - time.Second)
			l.reconcile(out)
			if got := l.c.Status.CurrentStatus.State; got != hexactfv1.StateCreating {
				t.Errorf("a second before the deadline it is %s", got)
			}
			l.now = l.now.Add(time.Second)
			l.reconcile(out)
			if got := l.c.Status.CurrentStatus.State; got != hexactfv1.StateError {
				t.Errorf("at the deadline it is %s", got)
			}
			l.shows(hexactfv1.ConditionAvailable, metav1.ConditionFalse, hexactfv1.ReasonStartDeadlineExceeded)
		})
	}
}

// An invalid definition is deleted, to be created again: only then the time without one begins, independent of the
// status that the condition had before.
func TestTimeWithoutADefinitionBeginsWithIt(t *testing.T) {
	c, cfg := testChallenge(), testConfig(t, nil)
	look := func(definition *hexactfv1.ChallengeDefinition, now time.Time) (Outcome, bool) {
		o := Observed{Challenge: c, Definition: definition}
		out := Outcome{Observed: o, Problem: check(o, config.HexaCTF{})}
		computeStatus(out, cfg, now)
		return out, terminal(c, out.Problem, cfg.DefinitionTimeout, now)
	}
	look(definitionOf(), noon)
	deleted := noon.Add(10 * time.Minute)
	out, given := look(nil, deleted)
	if given {
		t.Fatal("it is given up as soon as the definition is deleted")
	}
	if wait := requeueAfter(out, cfg, deleted); wait != 5*time.Minute {
		t.Errorf("requeued after %s", wait)
	}
	before := c.DeepCopy()
	if _, given = look(nil, deleted.Add(5*time.Minute-time.Second)); given {
		t.Error("it is given up too early")
	}
	if diff := cmp.Diff(before, c); diff != "" {
		t.Errorf("a second reconciliation (-before +after):\n%s", diff)
	}
	if _, given = look(nil, deleted.Add(5*time.Minute)); !given {
		t.Error("it is not given up")
	}
}

// Until the start the definition says how long a challenge lives, also an invalid one.
func TestABadDefinitionSaysHowLong(t *testing.T) {
	l := newLife(t)
	bad := definitionOf()
	bad.Spec.IsOne = true
	look := func(definition *hexactfv1.ChallengeDefinition) hexactfv1.ChallengeStatus {
		o := Observed{Challenge: l.c, Definition: definition}
		l.reconcile(Outcome{Observed: o, Problem: check(o, config.HexaCTF{})})
		return l.c.Status
	}
	if s := look(bad); s.ExpiresAt != nil || !s.IsOne {
		t.Errorf("a shared one expires at %s", s.ExpiresAt)
	}
	if s := look(nil); s.ExpiresAt != nil || !s.IsOne {
		t.Errorf("a shared one whose definition is being replaced expires at %s", s.ExpiresAt)
	}
	bad.Spec.IsOne, bad.Spec.Duration = false, &metav1.Duration{Duration: 2 * time.Hour}
	if s := look(bad); s.IsOne || s.ExpiresAt.Sub(noon) != 2*time.Hour {
		t.Errorf("one of two hours expires at %s", s.ExpiresAt)
	}
	for _, odd := range []time.Duration{-time.Hour, 0, maxDuration + 1} {
		bad.Spec.Duration.Duration = odd
		if s := look(bad); s.ExpiresAt == nil || s.ExpiresAt.Sub(noon) != hexactfv1.DefaultDuration {
			t.Errorf("one of %s expires at %s", odd, s.ExpiresAt)
		}
	}
	l.start(definitionOf(newComponent("web", "")))
	look(bad)
	if s := l.c.Status; s.ExpiresAt.Sub(noon) != hexactfv1.DefaultDuration {
		t.Errorf("after the start it expires at %s", s.ExpiresAt)
	}
}

func TestHowLongAChallengeLives(t *testing.T) {
	for name, tc := range map[string]struct {
		spec hexactfv1.ChallengeDefinitionSpec
		want time.Duration // 0: without limit
	}{
		"default":           {hexactfv1.ChallengeDefinitionSpec{}, 30 * time.Minute},
		"seconds":           {hexactfv1.ChallengeDefinitionSpec{Duration: &metav1.Duration{Duration: 5 * time.Second}}, 5 * time.Second},
		"shared":            {hexactfv1.ChallengeDefinitionSpec{IsOne: true}, 0},
		"shared, with time": {hexactfv1.ChallengeDefinitionSpec{IsOne: true, Duration: &metav1.Duration{Duration: time.Hour}}, 0},
	} {
		l := newLife(t)
		l.now = noon.Add(700 * time.Millisecond)
		definition := definitionOf(newComponent("web", ""))
		tc.spec.Components = definition.Spec.Components
		definition.Spec = tc.spec
		o := l.start(definition)
		o.Deployments = []*appsv1.Deployment{deploymentThat(true)}
		l.reconcile(Outcome{Observed: o})
		l.is(hexactfv1.StateRunning, hexactfv1.StateCreating, hexactfv1.StateRunning)
		s := l.c.Status
		switch {
		case s.IsOne != tc.spec.IsOne:
			t.Errorf("%s: isOne is %v", name, s.IsOne)
		case tc.want == 0 && (s.ExpiresAt != nil || expired(l.c, noon.Add(1000*time.Hour))):
			t.Errorf("%s: it expires at %s", name, s.ExpiresAt)
		case tc.want > 0 && (s.ExpiresAt.Sub(noon) != tc.want || expired(l.c, noon.Add(tc.want-1)) || !expired(l.c, noon.Add(tc.want))):
			t.Errorf("%s: it expires at %s", name, s.ExpiresAt)
		}
	}
}

func TestStartDeadline(t *testing.T) {
	l := newLife(t)
	o := l.start(definitionOf(newComponent("web", "")))
	o.Deployments = []*appsv1.Deployment{deploymentThat(false)}
	o.Pods = []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{hexactfv1.LabelName: "web"}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}},
		}}},
	}}
	out := Outcome{Observed: o}
	l.now = noon.Add(5*time.Minute - time.Second)
	l.reconcile(out)
	l.is(hexactfv1.StateCreating, hexactfv1.StateCreating)
	if wait := requeueAfter(out, l.cfg, l.now); wait != time.Second {
		t.Errorf("requeued after %s", wait)
	}
	l.now = noon.Add(5 * time.Minute)
	l.reconcile(out)
	l.is(hexactfv1.StateError, hexactfv1.StateCreating, hexactfv1.StateError)
	l.shows(hexactfv1.ConditionAvailable, metav1.ConditionFalse, hexactfv1.ReasonStartDeadlineExceeded)
	if got := l.c.Status.CurrentStatus.ErrorMsg; !strings.Contains(got, "Component web: container web: ImagePullBackOff: no such image") {
		t.Errorf("it says %q", got)
	}
	if wait := requeueAfter(out, l.cfg, l.now); wait != 0 {
		t.Errorf("requeued after %s though nothing will change", wait)
	}
	// It continues when the image exists.
	o.Deployments[0], o.Pods = deploymentThat(true), nil
	l.reconcile(Outcome{Observed: o})
	l.is(hexactfv1.StateRunning, hexactfv1.StateCreating, hexactfv1.StateError, hexactfv1.StateRunning)
}

func TestProblemsBeforeItRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		problem *outcome.Problem
		want    hexactfv1.State
	}{
		"refused":  {&outcome.Problem{Class: outcome.External, Reason: hexactfv1.ReasonRefused, Message: "over the quota"}, hexactfv1.StateError},
		"foreign":  {&outcome.Problem{Class: outcome.External, Reason: hexactfv1.ReasonOwnershipConflict, Message: "not ours"}, hexactfv1.StateError},
		"a hiccup": {&outcome.Problem{Class: outcome.Retry, Reason: hexactfv1.ReasonWriteFailed, Message: "timeout"}, hexactfv1.StateCreating},
		"waiting":  {&outcome.Problem{Class: outcome.Waiting, Reason: hexactfv1.ReasonWaiting, Message: "going"}, hexactfv1.StateCreating},
	} {
		l := newLife(t)
		o := l.start(definitionOf(newComponent("web", "")))
		tc.problem.Condition = hexactfv1.ConditionResourcesCreated
		l.reconcile(Outcome{Observed: o, Problem: tc.problem})
		if got := l.c.Status.CurrentStatus.State; got != tc.want {
			t.Errorf("%s: state %s, want %s", name, got, tc.want)
		}
		l.shows(hexactfv1.ConditionResourcesCreated, metav1.ConditionFalse, tc.problem.Reason)
	}
}

func TestBrokerThatIsAway(t *testing.T) {
	l := newLife(t)
	l.d.Problem = "the broker has not acknowledged in time"
	o := l.start(definitionOf(newComponent("web", "")))
	o.Deployments = []*appsv1.Deployment{deploymentThat(true)}
	l.reconcile(Outcome{Observed: o})
	l.is(hexactfv1.StateRunning, hexactfv1.StateCreating, hexactfv1.StateRunning)
	l.shows(hexactfv1.ConditionNotifying, metav1.ConditionFalse, hexactfv1.ReasonNotifyFailed)

	off := newLife(t)
	off.d.Off = true
	o = off.start(definitionOf(newComponent("web", "")))
	o.Deployments = []*appsv1.Deployment{deploymentThat(true)}
	off.reconcile(Outcome{Observed: o})
	off.is(hexactfv1.StateRunning)
	off.shows(hexactfv1.ConditionNotifying, metav1.ConditionTrue, hexactfv1.ReasonNotifyOff)
	computeTerminating(off.c, off.d, off.now)
	off.is(hexactfv1.StateTerminating)
}

func TestOutboxIsBounded(t *testing.T) {
	var s hexactfv1.ChallengeStatus
	record(&s, hexactfv1.StateError, noon)
	if s.Messages != nil {
		t.Error("a message without challenge and user")
	}
	s.ChallengeID, s.User = "42", "alice"
	gone := 0
	for range 200 {
		before := s.DeepCopy()
		record(&s, hexactfv1.StateError, noon)
		gone += dropped(before, &s, 0)
	}
	if gone != 200-maxOutbox {
		t.Errorf("%d messages are reported as dropped", gone)
	}
	all := s.Messages.Outbox
	if len(all) != maxOutbox || all[0].Sequence != 1 || all[len(all)-1].Sequence != 200 {
		t.Errorf("%d messages from %d to %d", len(all), all[0].Sequence, all[len(all)-1].Sequence)
	}
	if left := pending(&s, 199); len(left) != 1 || left[0].Sequence != 200 {
		t.Errorf("pending after 199: %v", left)
	}
	if left := pending(&s, 200); left != nil {
		t.Errorf("pending after all: %v", left)
	}
}

// All fields that consumers need are set, and a repeat has the same bytes.
func TestMessageAsConsumersReadIt(t *testing.T) {
	c := testChallenge()
	identify(c, nil, noon)
	c.Status.Endpoint = 30080
	record(&c.Status, hexactfv1.StateRunning, noon.Add(1234567*time.Nanosecond))
	m := c.Status.Messages.Outbox[0]
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	key, value, err := encode(c, m)
	if err != nil {
		t.Fatal(err)
	}
	// As it is after it was stored in the cluster.
	var kept hexactfv1.Message
	if err := json.Unmarshal(data, &kept); err != nil {
		t.Fatal(err)
	}
	_, repeat, err := encode(c, kept)
	if err != nil || string(repeat) != string(value) {
		t.Errorf("the repeat is %s, error %v; the message was %s", repeat, err, value)
	}
	const want = `{"user":"alice","problemId":"42","newStatus":"Running","timestamp":"2025-06-01T12:00:00.001234Z","endpoint":"30080","namespace":"event","name":"challenge-42-alice","uid":"7c0ffee0","sequence":1}`
	if key != "alice-42" || string(value) != want {
		t.Errorf("key %s, value\n%s, want\n%s", key, value, want)
	}
}

func TestInheritedChallenge(t *testing.T) {
	c := testChallenge()
	c.Status.StartedAt = &metav1.Time{Time: noon}
	c.Status.CurrentStatus.State = hexactfv1.StateRunning
	c.Status.Endpoint = 30500
	if !inherited(c) {
		t.Fatal("it is not recognised")
	}
	l := &life{T: t, c: c, cfg: testConfig(t, nil), now: noon.Add(10 * time.Minute)}
	before := c.Status.DeepCopy()
	computeInherited(c, nil, Delivery{}, l.now)
	l.check(before)
	l.is(hexactfv1.StateRunning)
	if s := c.Status; s.Endpoint != 30500 || s.ExpiresAt.Sub(noon) != 30*time.Minute || s.User != "alice" {
		t.Errorf("%+v", s)
	}
	again := c.DeepCopy()
	computeInherited(c, nil, Delivery{}, l.now.Add(time.Minute))
	if diff := cmp.Diff(again, c); diff != "" {
		t.Errorf("a second reconciliation (-before +after):\n%s", diff)
	}
	if !inherited(c) {
		t.Error("it is forgotten")
	}
	if c.Status.DefinitionSnapshot, c.Status.CurrentStatus.State = nil, hexactfv1.StateError; inherited(c) {
		t.Error("one that does not run is inherited")
	}
}

// A shared challenge of another operator has no end either.
func TestInheritedSharedChallenge(t *testing.T) {
	c := testChallenge()
	c.Status.StartedAt = &metav1.Time{Time: noon}
	c.Status.CurrentStatus.State = hexactfv1.StateRunning
	definition := definitionOf(newComponent("web", ""))
	definition.Spec.IsOne = true
	server := &cluster{challenge: c, definition: definition}
	server.reconcileAt(t, noon.Add(10*time.Minute))
	if s := c.Status; s.ExpiresAt != nil || !s.IsOne || s.RunningAt == nil {
		t.Errorf("%+v", s)
	}
	server.definition = nil // a running challenge does not depend on it
	again := c.DeepCopy()
	server.reconcileAt(t, noon.Add(time.Hour))
	if diff := cmp.Diff(again.Status, c.Status); diff != "" {
		t.Errorf("a second reconciliation (-before +after):\n%s", diff)
	}
}

func TestTrouble(t *testing.T) {
	waitingFor := func(reason string, last *corev1.ContainerStateTerminated) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}},
		}}}}
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = last
		return p
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"starting":      {waitingFor("ContainerCreating", nil), ""},
		"no image":      {waitingFor("ErrImagePull", nil), "container web: ErrImagePull: why"},
		"crashes":       {waitingFor("CrashLoopBackOff", &corev1.ContainerStateTerminated{ExitCode: 3, Message: "flag{secret}"}), "container web: CrashLoopBackOff: why; its last exit code was 3 (no reason)"},
		"unschedulable": {&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"}}}}, "Unschedulable: 0/1 nodes are available"},
		"well":          {&corev1.Pod{}, ""},
	} {
		tc.pod.Spec.Containers = []corev1.Container{{Name: "web", Env: []corev1.EnvVar{{Name: "FLAG", Value: "flag{secret}"}}}}
		if got := trouble(tc.pod); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		// The trimmed pod says the same, and nothing secret.
		TrimPod(tc.pod)
		if got := trouble(tc.pod); got != tc.want {
			t.Errorf("%s, trimmed: %q, want %q", name, got, tc.want)
		}
		if data, _ := json.Marshal(tc.pod); strings.Contains(string(data), "flag{secret}") {
			t.Errorf("%s: the flag is in the cache: %s", name, data)
		}
	}
}

func TestTrimmedDeploymentSaysTheSame(t *testing.T) {
	for name, status := range map[string]appsv1.DeploymentStatus{
		"available": {Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Message: "m"}}},
		"not yet":   {ReadyReplicas: 1, Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse}}},
		"over the quota": {Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota: q, requested: pods=1"},
		}},
		"no ReplicaSet": {Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: replicaSetCreateError, Message: "exceeded quota"},
		}},
		"of an earlier spec": {ObservedGeneration: 1, Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}},
	} {
		challengeWide := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: status.ObservedGeneration}, Status: status}
		if name == "of an earlier spec" {
			challengeWide.Generation = 2
		}
		trimmed := challengeWide.DeepCopy()
		TrimDeployment(trimmed)
		if available(challengeWide) != available(trimmed) || whyNot("web", challengeWide, nil) != whyNot("web", trimmed, nil) {
			t.Errorf("%s: trimmed says something else", name)
		}
		if text := whyNot("web", trimmed, nil); name == "over the quota" && !strings.Contains(text, "kubectl get resourcequotas") {
			t.Errorf("%s: no remedy: %s", name, text)
		}
		if want := name == "available"; available(trimmed) != want {
			t.Errorf("%s: available is %v", name, !want)
		}
	}
}
