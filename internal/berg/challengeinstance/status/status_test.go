package status

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/settings"
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
	i.Status.ChallengeRevision = "challenge-revision-one"
}

func wasReady(i *bergv1.ChallengeInstance) {
	started(i)
	i.Status.ReadyAt = &metav1.Time{Time: noon.Add(time.Second)}
}

func webOnly() manifests.Snapshot {
	return manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "i"}}}
}

func challengeOf(s manifests.Snapshot) *bergv1.Challenge {
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

func endedPod(container string, phase corev1.PodPhase, reason string) corev1.Pod {
	p := pod(container, false)
	p.Status.Phase, p.Status.Reason, p.Status.Message = phase, reason, "why"
	return p
}

// refusing lets an outcome see that the pods of a container are refused.
func refusing(out Outcome, container string) Outcome {
	out.Deployments = map[string]*appsv1.Deployment{container: {Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "why"},
	}}}}
	return out
}

// boxless lets an outcome see that pods got no sandbox.
func withoutSandbox(out Outcome) Outcome {
	out.Sandboxes = map[types.UID]string{"": "why"}
	return out
}

func TestCompute(t *testing.T) {
	pinned := webOnly()
	edited := manifests.Snapshot{AllowOutboundTraffic: true, Containers: pinned.Containers}
	broken := manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "Not A Name", Image: "i"}}}
	flagged := manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "i", DynamicFlag: &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}}}}
	cfg := config.Challenge{StartDeadline: 10 * time.Minute, Timeout: 2 * time.Hour}

	// unstarted and built make what a reconciliation saw of an instance before and after its
	// start; the Challenge is what it was, unless a case says otherwise.
	unstarted := func(p *outcome.Problem) Outcome {
		return Outcome{Observed: Observed{Candidate: Candidate{Instance: testInstance(), Challenge: challengeOf(pinned)}}, Problem: p}
	}
	built := func(state func(*bergv1.ChallengeInstance), p *outcome.Problem, pods ...corev1.Pod) Outcome {
		return Outcome{
			Observed: Observed{Candidate: Candidate{Instance: testInstance(state), Challenge: challengeOf(pinned), Pinned: &pinned}, Pods: pods},
			Problem:  p,
		}
	}
	pinnedTo := func(out Outcome, domain string) Outcome {
		s := pinned
		s.Defaults = cfg.Defaults
		s.Defaults.Domain = domain
		out.Pinned = &s
		return out
	}
	with := func(out Outcome, c *bergv1.Challenge) Outcome { out.Challenge = c; return out }
	problem := func(conditionType, reason string, class outcome.Class) *outcome.Problem {
		return &outcome.Problem{Condition: conditionType, Reason: reason, Class: class, Message: "why"}
	}

	for name, tc := range map[string]struct {
		out   Outcome
		now   time.Time
		phase bergv1.Phase
		// conditions as "<type>=<status>/<reason>"
		conditions []string
	}{
		"challenge missing": {
			out:        with(unstarted(problem(bergv1.ConditionChallengeFound, bergv1.ReasonChallengeMissing, outcome.Blocked)), nil),
			phase:      bergv1.PhaseFailed,
			conditions: []string{"ChallengeFound=False/ChallengeMissing", "FlagValidation=Unknown/Waiting", "DeploymentsCreated=Unknown/Waiting", "PodsReady=Unknown/Waiting", "UpToDate=Unknown/Waiting", "NamespaceDeleted=False/Live"},
		},
		"owner busy": {
			out:        unstarted(problem(bergv1.ConditionNamespaceCreated, bergv1.ReasonOwnerBusy, outcome.Waiting)),
			phase:      bergv1.PhasePending,
			conditions: []string{"ChallengeFound=True/Found", "FlagValidation=True/FlagNotNeeded", "NamespaceCreated=False/OwnerBusy"},
		},
		"owner busy after the start": {
			out:        built(started, problem(bergv1.ConditionNamespaceCreated, bergv1.ReasonOwnerBusy, outcome.Waiting)),
			phase:      bergv1.PhasePending,
			conditions: []string{"NamespaceCreated=False/OwnerBusy"},
		},
		"being built": {
			out:        built(started, BeingBuilt),
			phase:      bergv1.PhaseCreating,
			conditions: []string{"ChallengeFound=True/Found", "FlagValidation=True/FlagNotNeeded", "NamespaceCreated=Unknown/Creating", "DeploymentsCreated=Unknown/Waiting", "PodsReady=Unknown/Waiting"},
		},
		"refused half-way": {
			out:        built(started, problem(bergv1.ConditionServicesCreated, bergv1.ReasonRefused, outcome.Retry)),
			phase:      bergv1.PhaseCreating,
			conditions: []string{"NetworkPolicyCreated=True/Created", "ServicesCreated=False/Refused", "DeploymentsCreated=Unknown/Waiting"},
		},
		"refused until the start deadline": {
			out:        built(started, problem(bergv1.ConditionServicesCreated, bergv1.ReasonRefused, outcome.Retry)),
			now:        noon.Add(10 * time.Minute),
			phase:      bergv1.PhaseFailed,
			conditions: []string{"ServicesCreated=False/Refused", "PodsReady=False/StartDeadlineExceeded"},
		},
		"refused while running": {
			out:        built(wasReady, problem(bergv1.ConditionServicesCreated, bergv1.ReasonRefused, outcome.Retry), pod("web", true)),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"ServicesCreated=False/Refused", "DeploymentsCreated=Unknown/Waiting", "PodsReady=True/Ready", "Healthy=True/Ready"},
		},
		"refused while running, and a pod is gone": {
			out:        built(wasReady, problem(bergv1.ConditionDeploymentsCreated, bergv1.ReasonRefused, outcome.Retry)),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"DeploymentsCreated=False/Refused", "PodsReady=True/Ready", "Healthy=False/PodsNotReady"},
		},
		"namespace deleted by hand": {
			out:        built(wasReady, problem(bergv1.ConditionNamespaceCreated, bergv1.ReasonWaiting, outcome.Waiting)),
			phase:      bergv1.PhaseCreating,
			conditions: []string{"NamespaceCreated=False/Waiting", "DeploymentsCreated=Unknown/Waiting", "Healthy=Unknown/Waiting"},
		},
		"no pods yet": {
			out:        built(started, nil),
			phase:      bergv1.PhaseStarting,
			conditions: []string{"DeploymentsCreated=True/Created", "RoutesCreated=True/NotNeeded", "PodsReady=Unknown/Starting", "Healthy=Unknown/Starting", "UpToDate=True/UpToDate"},
		},
		"image cannot be pulled": {
			out:        built(started, nil, waitingPod("web", "ImagePullBackOff")),
			phase:      bergv1.PhaseStarting,
			conditions: []string{"PodsReady=False/ImagePullBackOff"},
		},
		"container is being created": {
			out:        built(started, nil, waitingPod("web", "ContainerCreating")),
			phase:      bergv1.PhaseStarting,
			conditions: []string{"PodsReady=Unknown/Starting"},
		},
		"start deadline passed": {
			out:        built(started, nil, waitingPod("web", "ImagePullBackOff")),
			now:        noon.Add(10 * time.Minute),
			phase:      bergv1.PhaseFailed,
			conditions: []string{"PodsReady=False/StartDeadlineExceeded"},
		},
		"ready after the start deadline": {
			out:        built(started, nil, pod("web", true)),
			now:        noon.Add(11 * time.Minute),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready"},
		},
		"unhealthy long after the start deadline": {
			out:        built(wasReady, nil, waitingPod("web", "CrashLoopBackOff")),
			now:        noon.Add(time.Hour),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready", "Healthy=False/CrashLoopBackOff"},
		},
		"ready": {
			out:        built(started, nil, pod("web", true)),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready", "Healthy=True/Ready"},
		},
		"pod of another container": {
			out:        built(started, nil, pod("other", true)),
			phase:      bergv1.PhaseStarting,
			conditions: []string{"PodsReady=Unknown/Starting"},
		},
		"crash loop while running": {
			out:        built(wasReady, nil, waitingPod("web", "CrashLoopBackOff")),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready", "Healthy=False/CrashLoopBackOff"},
		},
		"a pod was evicted and replaced": {
			out:        built(wasReady, nil, endedPod("web", corev1.PodFailed, "Evicted"), pod("web", true)),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready", "Healthy=True/Ready"},
		},
		"a pod was evicted before it was ready, and replaced": {
			out:        built(started, nil, pod("web", true), endedPod("web", corev1.PodFailed, "Evicted")),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready"},
		},
		"a pod was evicted and is being replaced": {
			out:        built(wasReady, nil, endedPod("web", corev1.PodFailed, "Evicted"), pod("web", false)),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"Healthy=False/PodsNotReady"},
		},
		"a pod was evicted and nothing replaces it": {
			out:        built(wasReady, nil, endedPod("web", corev1.PodFailed, "Evicted")),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"Healthy=False/Evicted"},
		},
		"the node had no room for a resource": {
			out:        built(started, nil, endedPod("web", corev1.PodFailed, "OutOfnvidia.com/gpu")),
			phase:      bergv1.PhaseStarting,
			conditions: []string{"PodsReady=False/OutOfnvidiacomgpu"},
		},
		"a pod ended without a reason": {
			out:        built(started, nil, endedPod("web", corev1.PodSucceeded, "")),
			phase:      bergv1.PhaseStarting,
			conditions: []string{"PodsReady=False/Succeeded"},
		},
		"pods are refused": {
			out:        refusing(built(started, nil), "web"),
			phase:      bergv1.PhaseStarting,
			conditions: []string{"DeploymentsCreated=True/Created", "PodsReady=False/Refused"},
		},
		"pods are refused until the start deadline": {
			out:        refusing(built(started, nil), "web"),
			now:        noon.Add(10 * time.Minute),
			phase:      bergv1.PhaseFailed,
			conditions: []string{"PodsReady=False/StartDeadlineExceeded"},
		},
		"the replacement is refused": {
			out:        refusing(built(wasReady, nil, endedPod("web", corev1.PodFailed, "Evicted")), "web"),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready", "Healthy=False/Refused"},
		},
		"pods were refused and are ready": {
			out:        refusing(built(started, nil, pod("web", true)), "web"),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready", "Healthy=True/Ready"},
		},
		"the runtime refuses a pod": {
			out:        withoutSandbox(built(started, nil, pod("web", false))),
			phase:      bergv1.PhaseStarting,
			conditions: []string{"PodsReady=False/FailedCreatePodSandBox"},
		},
		"the runtime has refused a pod that has its sandbox": {
			out: withoutSandbox(built(started, nil, func() corev1.Pod {
				p := pod("web", false)
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue})
				return p
			}())),
			phase:      bergv1.PhaseStarting,
			conditions: []string{"PodsReady=Unknown/Starting"},
		},
		"the runtime has refused a pod that is ready": {
			out:        withoutSandbox(built(started, nil, pod("web", true))),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"PodsReady=True/Ready", "Healthy=True/Ready"},
		},
		"pod lost while running": {
			out:        built(wasReady, nil),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"Healthy=False/PodsNotReady"},
		},
		"namespace taken away while running": {
			out:        built(wasReady, problem(bergv1.ConditionNamespaceCreated, bergv1.ReasonNamespaceConflict, outcome.Blocked)),
			phase:      bergv1.PhaseFailed,
			conditions: []string{"NamespaceCreated=False/NamespaceConflict", "Healthy=Unknown/Waiting"},
		},
		"challenge edited": {
			out:        with(built(wasReady, nil, pod("web", true)), challengeOf(edited)),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"ChallengeFound=True/Found", "UpToDate=False/ChallengeChanged", "Healthy=True/Ready"},
		},
		"configuration changed": {
			out:        pinnedTo(built(wasReady, nil, pod("web", true)), "former.example.com"),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"UpToDate=False/ConfigurationChanged", "Healthy=True/Ready"},
		},
		"configuration as it was": {
			out:        pinnedTo(built(wasReady, nil, pod("web", true)), cfg.Domain),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"UpToDate=True/UpToDate"},
		},
		"challenge edited and configuration changed": {
			out:        with(pinnedTo(built(wasReady, nil, pod("web", true)), "former.example.com"), challengeOf(edited)),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"UpToDate=False/ChallengeChanged"},
		},
		"challenge broken": {
			out:        with(built(wasReady, nil, pod("web", true)), challengeOf(broken)),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"ChallengeFound=True/Found", "UpToDate=False/InvalidChallenge", "Healthy=True/Ready"},
		},
		"challenge emptied": {
			out:        with(built(wasReady, nil, pod("web", true)), challengeOf(manifests.Snapshot{})),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"UpToDate=False/NothingToRun"},
		},
		"challenge asks for a flag that is not there": {
			out:        with(built(wasReady, nil, pod("web", true)), challengeOf(flagged)),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"FlagValidation=True/FlagNotNeeded", "UpToDate=False/FlagMissing"},
		},
		"challenge deleted": {
			out:        with(built(wasReady, nil, pod("web", true)), nil),
			phase:      bergv1.PhaseRunning,
			conditions: []string{"ChallengeFound=False/ChallengeMissing", "UpToDate=Unknown/ChallengeMissing", "Healthy=True/Ready"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := tc.now
			if now.IsZero() {
				now = noon.Add(5 * time.Second)
			}
			instance := tc.out.Instance
			compute(tc.out, cfg, now)
			if instance.Status.Phase != tc.phase {
				t.Errorf("phase %s, want %s", instance.Status.Phase, tc.phase)
			}
			for _, want := range tc.conditions {
				conditionType, rest, _ := strings.Cut(want, "=")
				c := meta.FindStatusCondition(instance.Status.Conditions, conditionType)
				if c == nil {
					t.Errorf("no condition %s", conditionType)
				} else if got := string(c.Status) + "/" + c.Reason; got != rest {
					t.Errorf("%s=%s, want %s", conditionType, got, want)
				}
			}
			is := func(c string) bool { return meta.IsStatusConditionTrue(instance.Status.Conditions, c) }
			if playable := tc.phase == bergv1.PhaseRunning && is(bergv1.ConditionHealthy); is(bergv1.ConditionReady) != playable {
				t.Errorf("Ready is %v, running and healthy %v", is(bergv1.ConditionReady), playable)
			}
			want := 12
			if is(bergv1.ConditionStalled) {
				want++
			}
			if is(bergv1.ConditionStalled) != (tc.phase == bergv1.PhaseFailed) {
				t.Errorf("Stalled is %v in the phase %s", is(bergv1.ConditionStalled), tc.phase)
			}
			if got := len(instance.Status.Conditions); got != want {
				t.Errorf("%d conditions, want the ten of a life, UpToDate, Ready, and Stalled if it has failed", got)
			}
			if err := conditions.Violations(nil, instance.Status.Conditions, instance.Generation); err != nil {
				t.Error(err)
			}

			settled := instance.DeepCopy()
			compute(tc.out, cfg, now.Add(time.Second))
			if !equality.Semantic.DeepEqual(settled.Status, instance.Status) {
				t.Errorf("the same outcome a second later gives another status:\n%+v\n%+v", settled.Status, instance.Status)
			}
		})
	}
}

func TestProblemOf(t *testing.T) {
	resource := schema.GroupResource{Resource: "services"}
	forbidden := apierrors.NewForbidden(resource, "web", errors.New("is being terminated"))
	forbidden.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err    error
		class  outcome.Class
		reason string
	}{
		"contested object":      {&apply.ContestedError{Kind: "Service", Name: "web"}, outcome.Retry, bergv1.ReasonContested},
		"foreign object":        {&ownership.RefusedError{Kind: "Service", Namespace: "n", Name: "web"}, outcome.External, bergv1.ReasonObjectConflict},
		"quota":                 {apierrors.NewForbidden(resource, "web", errors.New("exceeded quota")), outcome.Retry, bergv1.ReasonRefused},
		"namespace terminating": {forbidden, outcome.Waiting, bergv1.ReasonWaiting},
		"API not installed":     {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "cilium.io", Kind: "CiliumNetworkPolicy"}}, outcome.Blocked, bergv1.ReasonAPINotInstalled},
		"API being removed":     {apierrors.NewMethodNotSupported(resource, "create"), outcome.External, bergv1.ReasonAPINotInstalled},
		"API unknown to server": {apierrors.NewGenericServerResponse(404, "post", resource, "", "", 0, true), outcome.External, bergv1.ReasonAPINotInstalled},
		"conflict":              {apierrors.NewConflict(resource, "web", errors.New("modified")), outcome.Stale, ""},
		"gone":                  {apierrors.NewNotFound(resource, "web"), outcome.Stale, ""},
		"API server away":       {errors.New("connection refused"), outcome.Retry, bergv1.ReasonWriteFailed},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewProblem(bergv1.ConditionServicesCreated, tc.err, "flag{x}")
			if p.Class != tc.class || p.Reason != tc.reason || p.Message == "" {
				t.Errorf("%+v, want class %d, reason %s", p, tc.class, tc.reason)
			}
		})
	}
	leak := NewProblem(bergv1.ConditionDeploymentsCreated, errors.New(`env "flag{x}" refused`), "flag{x}")
	if strings.Contains(leak.Message+leak.Err.Error(), "flag{x}") {
		t.Errorf("the flag stands in %q", leak.Message)
	}
}

func TestExpiry(t *testing.T) {
	cfg := config.Challenge{Timeout: 2 * time.Hour, MaxLifetime: 3 * time.Hour}
	for text, want := range map[string]time.Duration{"": 2 * time.Hour, "30m": 30 * time.Minute, "1h30m10s": 90*time.Minute + 10*time.Second, "9h": 3 * time.Hour} {
		i := testInstance(started)
		i.Spec.Timeout = text
		end := noon.Add(want)
		if got := ExpiresAt(i, cfg); !got.Time.Equal(end) {
			t.Errorf("timeout %q: ends at %s, want %s", text, got, end)
		}
		if r := DueTermination(i, cfg, end.Add(-time.Nanosecond)); r != "" {
			t.Errorf("timeout %q: ends early (%s)", text, r)
		}
		if r := DueTermination(i, cfg, end); r != bergv1.TerminationTimeout {
			t.Errorf("timeout %q: does not end (%s)", text, r)
		}
	}
	i := testInstance(started, isFrozen)
	if r := DueTermination(i, cfg, noon.Add(100*time.Hour)); r != "" || ExpiresAt(i, cfg) != nil {
		t.Errorf("a frozen instance ends: %q, at %s", r, ExpiresAt(i, cfg))
	}
	i.Spec.TerminationReason = bergv1.TerminationAdmin
	if r := DueTermination(i, cfg, noon); r != bergv1.TerminationAdmin {
		t.Errorf("a frozen instance cannot be ended: %q", r)
	}
	i = testInstance()
	if r := DueTermination(i, cfg, noon.Add(100*time.Hour)); r != "" {
		t.Errorf("an instance that never started ends: %s", r)
	}
	i.Spec.TerminationReason = bergv1.TerminationAdmin
	if r := DueTermination(i, cfg, noon); r != bergv1.TerminationAdmin {
		t.Errorf("terminationReason is not followed: %q", r)
	}
}

func isFrozen(i *bergv1.ChallengeInstance) {
	i.Annotations = map[string]string{bergv1.AnnotationFrozen: "2025-06-01T12:00:00Z"}
}

func TestLifetime(t *testing.T) {
	for name, tc := range map[string]struct {
		own, pinned string
		cap         time.Duration
		want        time.Duration
	}{
		"what it says":               {own: "30m", want: 30 * time.Minute},
		"what it says goes first":    {own: "30m", pinned: "1h", want: 30 * time.Minute},
		"the default of its start":   {pinned: "1h", want: time.Hour},
		"of a version before":        {want: 2 * time.Hour},
		"the cap holds for all":      {own: "9h", pinned: "8h", cap: 3 * time.Hour, want: 3 * time.Hour},
		"for a default, too":         {pinned: "8h", cap: 3 * time.Hour, want: 3 * time.Hour},
		"a default below the cap":    {pinned: "1h", cap: 3 * time.Hour, want: time.Hour},
		"the longest":                {own: "2562047h47m16s", want: 2562047*time.Hour + 47*time.Minute + 16*time.Second},
		"too long to count":          {own: "2562048h", want: settings.MaxDuration},
		"far too long":               {own: "9999999999h", pinned: "1h", want: settings.MaxDuration},
		"far too long, in sum":       {own: "2562047h99m", want: settings.MaxDuration},
		"too long, and capped":       {own: "9999999999h", cap: 3 * time.Hour, want: 3 * time.Hour},
		"zero, of another schema":    {own: "0s", pinned: "1h", want: time.Hour},
		"nonsense of another schema": {own: "soon", pinned: "1h", want: time.Hour},
		"a snapshot that is broken":  {pinned: `1h"`, want: 2 * time.Hour},
	} {
		i := testInstance(started, timeout(tc.own))
		if tc.pinned != "" {
			pinnedDefault(tc.pinned)(i)
		}
		if got := lifetime(i, config.Challenge{Timeout: 2 * time.Hour, MaxLifetime: tc.cap}); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// pinnedDefault is a default timeout that an instance was started with.
func pinnedDefault(d string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) {
		if parsed, err := time.ParseDuration(d); err == nil {
			i.Status.DefaultTimeout = &metav1.Duration{Duration: parsed}
		}
	}
}

func timeout(d string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) { i.Spec.Timeout = d }
}

func TestStartDeadline(t *testing.T) {
	cfg := config.Challenge{StartDeadline: time.Minute}
	failed := func(i *bergv1.ChallengeInstance) { started(i); i.Status.Phase = bergv1.PhaseFailed }
	for name, tc := range map[string]struct {
		instance *bergv1.ChallengeInstance
		after    time.Duration
		want     time.Duration
	}{
		"not started":     {testInstance(), 0, 0},
		"starting":        {testInstance(started), 20 * time.Second, 40 * time.Second},
		"at the deadline": {testInstance(started), time.Minute, 1},
		"just passed":     {testInstance(started), time.Hour, 1},
		"failed already":  {testInstance(failed), time.Hour, 0},
		"ready":           {testInstance(wasReady), time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := UntilStartDeadline(tc.instance, cfg, noon.Add(tc.after)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
	if got := UntilStartDeadline(testInstance(started), config.Challenge{}, noon); got != 0 {
		t.Errorf("%s without a deadline", got)
	}
}

func testConfig(t testing.TB, overrides map[string]string) config.Berg {
	t.Helper()
	var cfg config.Berg
	_, err := settings.Load("", []settings.Section{cfg.Section()}, nil, func(name string) string { return overrides[name] }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// compute writes a status with all conditions, as the frame does.
func compute(out Outcome, cfg config.Challenge, now time.Time) {
	Compute(out, cfg, now).SetOn(&out.Instance.Status.Conditions, out.Instance.Generation, now)
}
