package status

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
)

func TestAnImageThatChangedUnderItsName(t *testing.T) {
	cfg := testConfig(t, nil).Challenge
	shown := func(o *Outcome) {
		o.Instance.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: bergv1.ReasonImageChanged, LastTransitionTime: metav1.NewTime(noon)}}
	}
	startedAt := func(o *Outcome, at time.Time) {
		o.Pods[0].Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(at)
	}
	for name, tc := range map[string]struct {
		modify func(*Outcome)
		want   string
	}{
		"nothing newer":                {func(*Outcome) {}, bergv1.ReasonUpToDate},
		"a newer instance has another": {func(o *Outcome) { o.Replaced = map[string]string{"web": "b"} }, bergv1.ReasonImageChanged},
		"and the Challenge was edited": {func(o *Outcome) {
			o.Replaced = map[string]string{"web": "b"}
			o.Challenge = o.Challenge.DeepCopy()
			o.Challenge.Spec.Containers[0].Image = "b:2"
		}, bergv1.ReasonChallengeChanged},
		"the operator was restarted":      {func(o *Outcome) { shown(o); startedAt(o, noon.Add(-time.Hour)) }, bergv1.ReasonImageChanged},
		"its container was started since": {func(o *Outcome) { shown(o); startedAt(o, noon.Add(time.Hour)) }, bergv1.ReasonUpToDate},
		"a rollout has adopted what it runs": {func(o *Outcome) {
			shown(o)
			startedAt(o, noon.Add(-time.Hour))
			o.Instance.Status.Images = map[string]string{"web": "a"}
		}, bergv1.ReasonUpToDate},
		"images are no more pulled every time": {func(o *Outcome) {
			shown(o)
			o.Pinned.Containers[0].ImagePullPolicy = ""
			o.Challenge.Spec.Containers[0].ImagePullPolicy = ""
		}, bergv1.ReasonUpToDate},
		"no pod runs": {func(o *Outcome) { shown(o); o.Pods = nil }, bergv1.ReasonUpToDate},
	} {
		out := startingWith(nil, pod("web", true))
		out.Pinned.Containers[0].ImagePullPolicy = bergv1.ImagePullPolicy(corev1.PullAlways)
		out.Pinned.Defaults = cfg.Defaults
		out.Challenge = challengeOf(*out.Pinned)
		out.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", ImageID: "a", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}}}
		tc.modify(&out)
		got := upToDate(out.Observed, cfg)
		if got.Reason != tc.want || (got.Status == metav1.ConditionTrue) != (tc.want == bergv1.ReasonUpToDate) {
			t.Errorf("%s: %s %s", name, got.Status, got.Reason)
		}
		if got.Reason == bergv1.ReasonImageChanged && (!strings.Contains(got.Message, "web") || !strings.Contains(got.Message, bergv1.AnnotationRollout)) {
			t.Errorf("%s: %s", name, got.Message)
		}
	}
}

// A rollout marks the pods that must restart, and no later one restarts them for that.
func TestARolloutPullsAnImageOnceMore(t *testing.T) {
	cfg := testConfig(t, nil).Challenge
	out := startingWith(nil, pod("web", true))
	images := func() map[string]string {
		t.Helper()
		pin(&out.Observed, Adoption{Snapshot: manifests.NewSnapshot(out.Challenge, cfg)}, cfg)
		if !out.Pinned.Matches(out.Challenge) || !defaultsCurrent(out.Pinned, cfg, out.Instance) {
			t.Fatalf("not up to date after a rollout: %+v", out.Pinned)
		}
		return out.Instance.Status.Images
	}
	if got := images(); got != nil {
		t.Errorf("without news: %v", got)
	}
	for _, digest := range []string{"b", "c"} {
		out.Replaced = map[string]string{"web": digest}
		if got := images(); got["web"] != digest {
			t.Errorf("%v, want %s", got, digest)
		}
		out.Replaced = nil
		if got := images(); got["web"] != digest {
			t.Errorf("the next rollout restarts it: %v", got)
		}
	}
}

// After a restart of the operator no newer instance may have been observed. The rollout restarts what the status reports.
func TestARolloutPullsAnImageWhoseDigestIsForgotten(t *testing.T) {
	cfg := testConfig(t, nil).Challenge
	out := startingWith(nil, pod("web", true))
	out.Pinned.Containers[0].ImagePullPolicy = bergv1.ImagePullPolicy(corev1.PullAlways)
	out.Instance.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: bergv1.ReasonImageChanged, LastTransitionTime: metav1.NewTime(noon)}}
	out.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", ImageID: "a", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(-time.Hour))}}}}
	var all []string
	for _, request := range []string{"1", "2", strings.Repeat("long", 1<<10)} {
		o := out.Observed
		o.Instance = out.Instance.DeepCopy()
		o.Instance.Annotations = map[string]string{bergv1.AnnotationRollout: request}
		pin(&o, Adoption{Snapshot: *out.Pinned}, cfg)
		all = append(all, o.Instance.Status.Images["web"])
	}
	if all[0] == "" || all[0] == all[1] || all[1] == all[2] || len(all[2]) > 32 {
		t.Errorf("%q", all)
	}
}

// Images are compared where nodes pull them at every start: elsewhere one node has the old one, and another the new one.
func TestImagesAreComparedWhereTheyArePulledAtEveryStart(t *testing.T) {
	for _, tc := range []struct {
		configured config.Challenge
		author     string
		want       bool
	}{
		{config.Challenge{Defaults: config.Defaults{ImagePullPolicy: corev1.PullIfNotPresent}}, "", false},
		{config.Challenge{Defaults: config.Defaults{ImagePullPolicy: corev1.PullIfNotPresent}}, "Always", true},
		{config.Challenge{Defaults: config.Defaults{ImagePullPolicy: corev1.PullAlways}}, "", true},
		{config.Challenge{Defaults: config.Defaults{ImagePullPolicy: corev1.PullAlways}}, "IfNotPresent", false},
		{config.Challenge{Defaults: config.Defaults{ImagePullPolicy: corev1.PullNever}}, "Always", false},
	} {
		out := startingWith(nil, pod("web", true))
		out.Pinned.Defaults = tc.configured.Defaults
		out.Pinned.Containers[0].ImagePullPolicy = bergv1.ImagePullPolicy(tc.author)
		out.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", ImageID: "a", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		if got := RunningImages(out.Observed); (got["web"].Digest == "a") != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
