package status

import (
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

func TestTheIDOfAnInstanceHasTheTimeOfItsStart(t *testing.T) {
	now := noon.Add(123456 * time.Microsecond)
	var i bergv1.ChallengeInstance
	random, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	Identify(&i, Identity{ID: random, Seed: "seed", NamespaceTokenHash: "digest"}, now)
	if s := i.Status; s.Seed != "seed" || s.NamespaceTokenHash != "digest" || s.NamespaceUID != "" {
		t.Errorf("the status has seed %q, proof %q and namespace %q", s.Seed, s.NamespaceTokenHash, s.NamespaceUID)
	}
	id, err := uuid.Parse(i.Status.InstanceID)
	if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		t.Fatalf("%s is no UUID of version 7: %v", i.Status.InstanceID, err)
	}
	if got := view.StartedAt(&i); !got.Equal(now.Truncate(time.Millisecond)) {
		t.Errorf("started at %s", got)
	}

	i.Status.StartedAt = &metav1.Time{Time: noon.Add(-time.Hour)}
	if got := view.StartedAt(&i); !got.Equal(noon.Add(-time.Hour)) {
		t.Errorf("started at %s by an ID of another clock", got)
	}
	i.Status.InstanceID = "none"
	if got := view.StartedAt(&i); !got.Equal(noon.Add(-time.Hour)) {
		t.Errorf("started at %s without an ID", got)
	}
}

// A player who waits must get what was mended; one who plays must keep what runs.
func TestWhatNeverRanAdoptsItsChallenge(t *testing.T) {
	cfg := testConfig(t, nil).Challenge
	edited := manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "example.com/web:2"}}}
	invalid := manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "UPPER"}}}
	for name, tc := range map[string]struct {
		ran       func(*bergv1.ChallengeInstance)
		challenge *bergv1.Challenge
		settings  bool // were changed
		pods      []corev1.Pod
		want      bool
	}{
		"nothing changed":                    {started, challengeOf(webOnly()), false, nil, false},
		"edited":                             {started, challengeOf(edited), false, nil, true},
		"edited, and invalid":                {started, challengeOf(invalid), false, nil, false},
		"edited, runs":                       {wasReady, challengeOf(edited), false, nil, false},
		"edited, ran and cannot start":       {wasReady, challengeOf(edited), false, []corev1.Pod{waitingPod("web", "ImagePullBackOff")}, false},
		"deleted":                            {started, nil, false, nil, false},
		"settings, while it starts":          {started, challengeOf(webOnly()), true, []corev1.Pod{pod("web", false)}, false},
		"settings, and it cannot start":      {started, challengeOf(webOnly()), true, []corev1.Pod{waitingPod("web", "ImagePullBackOff")}, true},
		"no settings, and it cannot start":   {started, challengeOf(webOnly()), false, []corev1.Pod{waitingPod("web", "ImagePullBackOff")}, false},
		"settings, ran and cannot start now": {wasReady, challengeOf(webOnly()), true, []corev1.Pod{waitingPod("web", "ImagePullBackOff")}, false},
	} {
		pinned := webOnly()
		pinned.Defaults = cfg.Defaults
		if tc.settings {
			pinned.Defaults.PullSecretName = "another"
		}
		o := Observed{Candidate: Candidate{Instance: testInstance(tc.ran), Challenge: tc.challenge, Pinned: &pinned}, Pods: tc.pods}
		if got := RolloutDue(o, cfg, noon); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
		if !tc.want {
			continue
		}
		pin(&o, Adoption{Snapshot: manifests.NewSnapshot(o.Challenge, cfg)}, cfg)
		if RolloutDue(o, cfg, noon) {
			t.Errorf("%s: it is adopted again and again", name)
		}
	}
}
