package status

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/sealkey"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

func secretive(value string) manifests.Snapshot {
	return manifests.Snapshot{Containers: []bergv1.Container{{
		Hostname: "web", Image: "i", Environment: map[string]bergv1.EnvironmentValue{"ADMIN_PASSWORD": bergv1.StringValue(value)},
	}}}
}

// storedAs is an instance that was started with a Challenge, as it is read with some keys.
func storedAs(t *testing.T, s manifests.Snapshot, ring *sealkey.Ring, state func(*bergv1.ChallengeInstance)) Observed {
	t.Helper()
	i := testInstance(state)
	var err error
	if i.Status.ChallengeSnapshot, err = s.Encode(testRing, i.UID); err != nil {
		t.Fatal(err)
	}
	pinned, err := manifests.StoredSnapshot(i, ring)
	if err != nil {
		t.Fatal(err)
	}
	return Observed{Candidate: Candidate{Instance: i, Challenge: challengeOf(s), Pinned: pinned}}
}

func TestUpToDateTellsWhatIsNotShown(t *testing.T) {
	cfg := testConfig(t, nil).Challenge
	invalid := secretive("hunter2")
	invalid.Containers[0].Image = "UPPER"
	none := (*sealkey.Ring)(nil)
	for name, tc := range map[string]struct {
		ring      *sealkey.Ring
		challenge *bergv1.Challenge
		status    metav1.ConditionStatus
		reason    string
		says      string
	}{
		"as it was":                      {testRing, challengeOf(secretive("hunter2")), metav1.ConditionTrue, bergv1.ReasonUpToDate, "matches"},
		"another value":                  {testRing, challengeOf(secretive("hunter3")), metav1.ConditionFalse, bergv1.ReasonChallengeChanged, "web (environment ADMIN_PASSWORD)"},
		"lost":                           {none, challengeOf(secretive("hunter2")), metav1.ConditionFalse, bergv1.ReasonValuesLost, bergv1.AnnotationRollout},
		"lost, and the Challenge is too": {none, nil, metav1.ConditionUnknown, bergv1.ReasonValuesLost, "end the instance"},
		"lost, and an invalid Challenge": {none, challengeOf(invalid), metav1.ConditionFalse, bergv1.ReasonInvalidChallenge, "image"},
	} {
		o := storedAs(t, secretive("hunter2"), tc.ring, wasReady)
		o.Challenge = tc.challenge
		got := upToDate(o, cfg)
		if got.Status != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.says) {
			t.Errorf("%s: %s %s: %s", name, got.Status, got.Reason, got.Message)
		}
		if tc.ring == nil && !strings.Contains(got.Message, sealkey.SecretName) {
			t.Errorf("%s: the Secret is not named: %s", name, got.Message)
		}
		if strings.Contains(got.Message, "hunter") {
			t.Errorf("%s: a value is repeated: %s", name, got.Message)
		}
	}
}

func TestWhatIsLostIsAdoptedWithoutLoss(t *testing.T) {
	cfg := testConfig(t, nil).Challenge
	for name, tc := range map[string]struct {
		state     func(*bergv1.ChallengeInstance)
		challenge bool
		want      bool
	}{
		"it never ran": {started, true, true},
		"it never ran, and its Challenge is gone": {started, false, false},
		"it runs": {wasReady, true, false},
		"it runs, and a rollout is requested": {func(i *bergv1.ChallengeInstance) {
			wasReady(i)
			i.Annotations = map[string]string{bergv1.AnnotationRollout: "1"}
		}, true, true},
		"it runs, and a rollout of nothing is requested": {func(i *bergv1.ChallengeInstance) {
			wasReady(i)
			i.Annotations = map[string]string{bergv1.AnnotationRollout: "1"}
		}, false, false},
	} {
		o := storedAs(t, secretive("hunter2"), nil, tc.state)
		if !tc.challenge {
			o.Challenge = nil
		}
		if got := RolloutDue(o, cfg, noon); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
		if !tc.want {
			continue
		}
		if err := Pin(&o, cfg, testRing); err != nil {
			t.Fatal(err)
		}
		if stored, err := manifests.StoredSnapshot(o.Instance, testRing); err != nil || stored.Seal != manifests.SealCurrent || !stored.Matches(o.Challenge) {
			t.Errorf("%s: %+v, error %v", name, stored, err)
		}
	}
}

// What opens and is not sealed with the key of today is sealed once; what does not open stays as it is, for the case that
// its key is found.
func TestSnapshotsAreSealedAgainOnce(t *testing.T) {
	newer, err := testRing.With(sealkey.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		ring *sealkey.Ring
		want bool
	}{"with its key": {testRing, false}, "with a newer one": {newer, true}, "lost": {nil, false}} {
		o := storedAs(t, secretive("hunter2"), tc.ring, wasReady)
		before := string(o.Instance.Status.ChallengeSnapshot.Raw)
		ring := tc.ring
		if ring == nil {
			ring = newer
		}
		for _, written := range []bool{tc.want, false} {
			if err := SealAgain(&o, ring); err != nil {
				t.Fatal(err)
			}
			after := string(o.Instance.Status.ChallengeSnapshot.Raw)
			if (after != before) != written {
				t.Errorf("%s: written %v", name, after != before)
			}
			before = after
			if tc.ring == nil {
				continue
			}
			if o.Pinned, err = manifests.StoredSnapshot(o.Instance, ring); err != nil || !o.Pinned.Matches(o.Challenge) {
				t.Errorf("%s: %+v, error %v", name, o.Pinned, err)
			}
		}
	}
	if err := SealAgain(&Observed{}, newer); err != nil {
		t.Errorf("before the start: %v", err)
	}
}

func TestADeploymentThatCannotBeMadeAgainIsAProblem(t *testing.T) {
	p := NewProblem(bergv1.ConditionDeploymentsCreated, &LostError{"web"}, "flag{x}")
	if p.Reason != bergv1.ReasonValuesLost || p.Class != outcome.Blocked || p.Err != nil {
		t.Errorf("%+v", p)
	}
	for _, part := range []string{"container web", sealkey.SecretName, bergv1.AnnotationRollout} {
		if !strings.Contains(p.Message, part) {
			t.Errorf("%q is not in: %s", part, p.Message)
		}
	}
}
