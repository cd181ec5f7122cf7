package challengeinstance

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

func testInstance(modify ...func(*bergv1.ChallengeInstance)) *bergv1.ChallengeInstance {
	i := &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "berg", Name: "one", UID: "uid-one", Generation: 3,
			CreationTimestamp: metav1.Time{Time: noon.Add(-time.Minute)},
		},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: "chall"},
			OwnerID:      "a1b2c3d4-e5f6-7890-abcd-ef1234567890",
		},
	}
	for _, m := range modify {
		m(i)
	}
	return i
}

func started(i *bergv1.ChallengeInstance) {
	i.Status.InstanceID = "01920000-0000-7000-8000-000000000001"
	i.Status.StartedAt = &metav1.Time{Time: noon}
	i.Status.ChallengeSnapshot, _ = webOnly().raw()
}

func wasReady(i *bergv1.ChallengeInstance) {
	started(i)
	i.Status.ReadyAt = &metav1.Time{Time: noon.Add(time.Second)}
}

func webOnly() Snapshot {
	return Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "i"}}}
}

func challengeOf(s Snapshot) *bergv1.Challenge {
	return &bergv1.Challenge{Spec: bergv1.ChallengeSpec{Containers: s.Containers, AllowOutboundTraffic: s.AllowOutboundTraffic}}
}

func pod(container string, ready bool) corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{bergv1.LabelContainer: container}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
}

func waitingPod(container, reason string) corev1.Pod {
	p := pod(container, false)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}}}
	return p
}

func TestDerive(t *testing.T) {
	pinned := webOnly()
	found := Observed{Challenge: challengeOf(pinned)}
	withPods := func(pods ...corev1.Pod) Observed { return Observed{Challenge: found.Challenge, Pods: pods} }
	cfg := config.Challenge{StartDeadline: 10 * time.Minute}

	for name, tc := range map[string]struct {
		instance *bergv1.ChallengeInstance
		out      Outcome
		now      time.Time
		phase    bergv1.Phase
		// conditions as "<type>=<status>/<reason>"
		conditions []string
	}{
		"challenge missing": {
			instance:   testInstance(),
			out:        Outcome{Problem: &Problem{Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonChallengeMissing, Class: Blocked}},
			phase:      bergv1.PhaseFailed,
			conditions: []string{"ChallengeFound=False/ChallengeMissing", "FlagValidation=Unknown/Waiting", "DeploymentsCreated=Unknown/Waiting", "PodsReady=Unknown/Waiting", "NamespaceDeleted=False/Live"},
		},
		"owner busy": {
			instance:   testInstance(),
			out:        Outcome{Observed: found, Problem: &Problem{Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonOwnerBusy, Class: Waiting}},
			phase:      bergv1.PhasePending,
			conditions: []string{"ChallengeFound=True/Found", "FlagValidation=True/FlagNotNeeded", "NamespaceCreated=False/OwnerBusy"},
		},
		"refused half-way": {
			instance:   testInstance(started),
			out:        Outcome{Observed: found, Pinned: &pinned, Problem: &Problem{Condition: bergv1.ConditionServicesCreated, Reason: bergv1.ReasonRefused, Class: Retry}},
			phase:      bergv1.PhaseCreating,
			conditions: []string{"NetworkPolicyCreated=True/Created", "ServicesCreated=False/Refused", "DeploymentsCreated=Unknown/Waiting"},
		},
		"refused while running": {
			instance:   testInstance(wasReady),
			out:        Outcome{Observed: withPods(pod("web", true)), Pinned: &pinned, Problem: &Problem{Condition: bergv1.ConditionServicesCreated, Reason: bergv1.ReasonRefused, Class: Retry}},
			phase:      bergv1.PhaseRunning,
			conditions: []string{"ServicesCreated=False/Refused", "PodsReady=True/Ready", "Healthy=Unknown/Waiting"},
		},
		"no pods yet": {
			instance:   testInstance(started),
			out:        Outcome{Observed: found, Pinned: &pinned},
			phase:      bergv1.PhaseStarting,
			conditions: []string{"DeploymentsCreated=True/Created", "RoutesCreated=True/NotNeeded", "PodsReady=Unknown/Starting", "Healthy=Unknown/Starting", "UpToDate=True/UpToDate"},
		},
		"image cannot be pulled": {
			instance:   testInstance(started),
			out:        Outcome{Observed: withPods(waitingPod("web", "ImagePullBackOff")), Pinned: &pinned},
			phase:      bergv1.PhaseStarting,
			conditions: []string{"PodsReady=False/ImagePullBackOff"},
		},
		"container is being created": {
			instance:   testInstance(started),
			out:        Outcome{Observed: withPods(waitingPod("web", "ContainerCreating")), Pinned: &pinned},
			phase:      bergv1.PhaseStarting,
			conditions: []string{"PodsReady=Unknown/Starting"},
		},
		"start deadline passed": {
			instance:   testInstance(started),
			out:        Outcome{Observed: withPods(waitingPod("web", "ImagePullBackOff")), Pinned: &pinned},
			now:        noon.Add(10 * time.Minute),
			phase:      bergv1.PhaseFailed,
			conditions: []string{"PodsReady=False/StartDeadlineExceeded"},
		},
		"ready": {
			instance:   testInstance(started),
			out:        Outcome{Observed: withPods(pod("web", true)), Pinned: &pinned},
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready", "Healthy=True/Ready"},
		},
		"pod of another container": {
			instance:   testInstance(started),
			out:        Outcome{Observed: withPods(pod("other", true)), Pinned: &pinned},
			phase:      bergv1.PhaseStarting,
			conditions: []string{"PodsReady=Unknown/Starting"},
		},
		"crash loop while running": {
			instance:   testInstance(wasReady),
			out:        Outcome{Observed: withPods(waitingPod("web", "CrashLoopBackOff")), Pinned: &pinned},
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready", "Healthy=False/CrashLoopBackOff"},
		},
		"pod lost while running": {
			instance:   testInstance(wasReady),
			out:        Outcome{Observed: found, Pinned: &pinned},
			phase:      bergv1.PhaseRunning,
			conditions: []string{"Healthy=False/PodsNotReady"},
		},
		"challenge edited": {
			instance:   testInstance(wasReady),
			out:        Outcome{Observed: Observed{Challenge: challengeOf(Snapshot{AllowOutboundTraffic: true, Containers: pinned.Containers}), Pods: []corev1.Pod{pod("web", true)}}, Pinned: &pinned},
			phase:      bergv1.PhaseRunning,
			conditions: []string{"UpToDate=False/ChallengeChanged", "Healthy=True/Ready"},
		},
		"challenge deleted": {
			instance:   testInstance(wasReady),
			out:        Outcome{Observed: Observed{Pods: []corev1.Pod{pod("web", true)}}, Pinned: &pinned},
			phase:      bergv1.PhaseRunning,
			conditions: []string{"ChallengeFound=False/ChallengeMissing", "UpToDate=Unknown/ChallengeMissing", "Healthy=True/Ready"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := tc.now
			if now.IsZero() {
				now = noon.Add(5 * time.Second)
			}
			derive(tc.instance, tc.out, cfg, now)
			if tc.instance.Status.Phase != tc.phase {
				t.Errorf("phase %s, want %s", tc.instance.Status.Phase, tc.phase)
			}
			for _, want := range tc.conditions {
				conditionType, rest, _ := strings.Cut(want, "=")
				c := meta.FindStatusCondition(tc.instance.Status.Conditions, conditionType)
				if c == nil {
					t.Errorf("no condition %s", conditionType)
				} else if got := string(c.Status) + "/" + c.Reason; got != rest {
					t.Errorf("%s=%s, want %s", conditionType, got, want)
				}
			}
			for _, c := range tc.instance.Status.Conditions {
				if c.ObservedGeneration != tc.instance.Generation || c.Message == "" && tc.out.Problem == nil {
					t.Errorf("condition %+v is not complete", c)
				}
			}

			settled := tc.instance.DeepCopy()
			derive(tc.instance, tc.out, cfg, now.Add(time.Second))
			if !equality.Semantic.DeepEqual(settled.Status, tc.instance.Status) {
				t.Errorf("the same outcome a second later gives another status:\n%+v\n%+v", settled.Status, tc.instance.Status)
			}
		})
	}
}

func TestJudgeNamespace(t *testing.T) {
	ns := func(owner types.UID, deleting bool) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: NamespaceName("a1b2c3d4-e5f6-7890-abcd-ef1234567890")}}
		ownership.Proof{Annotation: bergv1.AnnotationInstanceUID, UID: owner}.Stamp(n)
		if deleting {
			n.DeletionTimestamp = &metav1.Time{Time: noon}
		}
		return n
	}
	older := *testInstance(func(i *bergv1.ChallengeInstance) {
		i.Name, i.UID = "older", "uid-older"
		i.CreationTimestamp = metav1.Time{Time: noon.Add(-time.Hour)}
	})
	twin := *testInstance(func(i *bergv1.ChallengeInstance) { i.Name, i.UID = "twin", "uid-zzz" })
	failed := *older.DeepCopy()
	failed.Status.Phase = bergv1.PhaseFailed

	for name, tc := range map[string]struct {
		o      Observed
		reason string
	}{
		"free":                         {Observed{}, ""},
		"ours":                         {Observed{Namespace: ns("uid-one", false)}, ""},
		"ours, deleted by hand":        {Observed{Namespace: ns("uid-one", true)}, bergv1.ReasonWaiting},
		"foreign":                      {Observed{Namespace: &corev1.Namespace{}}, bergv1.ReasonNamespaceConflict},
		"of an instance that is gone":  {Observed{Namespace: ns("uid-gone", false)}, bergv1.ReasonNamespaceConflict},
		"of a sibling":                 {Observed{Namespace: ns("uid-older", false), Siblings: []bergv1.ChallengeInstance{older}}, bergv1.ReasonOwnerBusy},
		"of a sibling, terminating":    {Observed{Namespace: ns("uid-older", true), Siblings: []bergv1.ChallengeInstance{older}}, bergv1.ReasonOwnerBusy},
		"free, older sibling":          {Observed{Siblings: []bergv1.ChallengeInstance{older}}, bergv1.ReasonOwnerBusy},
		"free, older sibling failed":   {Observed{Siblings: []bergv1.ChallengeInstance{failed}}, ""},
		"free, twin with a higher UID": {Observed{Siblings: []bergv1.ChallengeInstance{twin}}, ""},
		"ours, older sibling waits":    {Observed{Namespace: ns("uid-one", false), Siblings: []bergv1.ChallengeInstance{older}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := judgeNamespace(testInstance(), tc.o)
			switch {
			case p == nil && tc.reason != "":
				t.Errorf("no problem, want %s", tc.reason)
			case p != nil && p.Reason != tc.reason:
				t.Errorf("%s (%s), want %q", p.Reason, p.Message, tc.reason)
			}
		})
	}
}

func TestProblemOf(t *testing.T) {
	resource := schema.GroupResource{Resource: "services"}
	terminating := apierrors.NewForbidden(resource, "web", errors.New("is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err    error
		class  Class
		reason string
	}{
		"contested object":      {&apply.ContestedError{Kind: "Service", Name: "web"}, Retry, bergv1.ReasonContested},
		"foreign object":        {&ownership.RefusedError{Kind: "Service", Namespace: "n", Name: "web"}, Foreign, bergv1.ReasonObjectConflict},
		"quota":                 {apierrors.NewForbidden(resource, "web", errors.New("exceeded quota")), Retry, bergv1.ReasonRefused},
		"namespace terminating": {terminating, Waiting, bergv1.ReasonWaiting},
		"API not installed":     {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "cilium.io", Kind: "CiliumNetworkPolicy"}}, Blocked, bergv1.ReasonAPINotInstalled},
		"API being removed":     {apierrors.NewMethodNotSupported(resource, "create"), Foreign, bergv1.ReasonAPINotInstalled},
		"API unknown to server": {apierrors.NewGenericServerResponse(404, "post", resource, "", "", 0, true), Foreign, bergv1.ReasonAPINotInstalled},
		"namespace gone":        {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "n"), Retry, bergv1.ReasonWriteFailed},
		"API server away":       {errors.New("connection refused"), Retry, bergv1.ReasonWriteFailed},
	} {
		t.Run(name, func(t *testing.T) {
			p := problemOf(bergv1.ConditionServicesCreated, tc.err, "flag{x}")
			if p.Class != tc.class || p.Reason != tc.reason || p.Message == "" {
				t.Errorf("%+v, want class %d, reason %s", p, tc.class, tc.reason)
			}
		})
	}
	leak := problemOf(bergv1.ConditionDeploymentsCreated, errors.New(`env "flag{x}" refused`), "flag{x}")
	if strings.Contains(leak.Message+leak.Err.Error(), "flag{x}") {
		t.Errorf("the flag stands in %q", leak.Message)
	}
}

func TestExpiry(t *testing.T) {
	cfg := config.Challenge{Timeout: 2 * time.Hour, MaxLifetime: 3 * time.Hour}
	for timeout, want := range map[string]time.Duration{"": 2 * time.Hour, "30m": 30 * time.Minute, "1h30m10s": 90*time.Minute + 10*time.Second, "9h": 3 * time.Hour} {
		i := testInstance(started)
		i.Spec.Timeout = timeout
		setExpiry(i, cfg)
		if got := i.Status.ExpiresAt.Sub(noon); got != want {
			t.Errorf("timeout %q: lives %s, want %s", timeout, got, want)
		}
		end := noon.Add(want)
		if r := dueTermination(i, cfg, end.Add(-time.Nanosecond)); r != "" {
			t.Errorf("timeout %q: ends early (%s)", timeout, r)
		}
		if r := dueTermination(i, cfg, end); r != bergv1.TerminationTimeout {
			t.Errorf("timeout %q: does not end (%s)", timeout, r)
		}
		if got := wakeUp(i, cfg, end.Add(-time.Second)); got != time.Second {
			t.Errorf("timeout %q: wakes up after %s", timeout, got)
		}
	}
	i := testInstance()
	if r := dueTermination(i, cfg, noon.Add(100*time.Hour)); r != "" {
		t.Errorf("an instance that never started ends: %s", r)
	}
	i.Spec.TerminationReason = bergv1.TerminationAdmin
	if r := dueTermination(i, cfg, noon); r != bergv1.TerminationAdmin {
		t.Errorf("terminationReason is not followed: %q", r)
	}
}
