package challengeinstance

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// Without the key of its start, an instance goes on with what runs, and no pod restarts.
func TestWhatIsLostIsTakenFromTheChallengeOrFromWhatRuns(t *testing.T) {
	secretive := func(value string) manifests.Snapshot {
		web := bergv1.Container{Hostname: "web", Image: "i", Environment: map[string]bergv1.EnvironmentValue{"ADMIN_PASSWORD": bergv1.StringValue(value)}}
		return manifests.Snapshot{Containers: []bergv1.Container{web, {Hostname: "db", Image: "i", Command: []string{"db", value}}}}
	}
	r := &Reconciler{Config: testConfig(t, nil)}
	r.Config.Challenge.NetworkPolicy = r.Config.Challenge.NetworkPolicy.On(true, true)
	for name, tc := range map[string]struct {
		challenge *bergv1.Challenge
		gone      []string // Deployments
		// found: the Challenge has the values. missing is the container that cannot be built.
		found   bool
		missing string
		want    string
	}{
		"the Challenge as it was":                               {challengeOf(secretive("hunter2")), nil, true, "", "hunter2"},
		"the Challenge as it was, without a Deployment":         {challengeOf(secretive("hunter2")), []string{"db"}, true, "", "hunter2"},
		"the Challenge as it was, without any":                  {challengeOf(secretive("hunter2")), []string{"db", "web"}, true, "", "hunter2"},
		"a Challenge with another value":                        {challengeOf(secretive("hunter3")), nil, false, "", "hunter2"},
		"a Challenge with another value, without a Deployment":  {challengeOf(secretive("hunter3")), []string{"db"}, false, "db", ""},
		"a Challenge with another value, of which nothing runs": {challengeOf(secretive("hunter3")), []string{"db", "web"}, true, "", "hunter3"},
		"another Challenge":                                     {challengeOf(webOnly()), nil, false, "", "hunter2"},
		"no Challenge":                                          {nil, nil, false, "", "hunter2"},
		"no Challenge, without a Deployment":                    {nil, []string{"web"}, false, "web", ""},
	} {
		pinned := secretive("hunter2")
		instance := testInstance(wasReady)
		in := r.inputs(status.Observed{Candidate: status.Candidate{Instance: instance, Pinned: &pinned}, Policies: r.Config.Challenge.NetworkPolicy})
		deployments := map[string]*appsv1.Deployment{}
		owner := manifests.OwnerFor(instance)
		for _, d := range manifests.PlanWorkloads(in, nil) {
			sum, err := apply.PlanChecksum(r.Writer, owner, d)
			if err != nil {
				t.Fatal(err)
			}
			live := d.DeepCopy()
			owner.SetOn(live)
			live.Annotations[apply.ChecksumAnnotation(owner.Annotation)] = sum
			live.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "added-by-admission"}}, live.Spec.Template.Spec.Containers...)
			deployments[d.Name] = live
		}
		for _, container := range tc.gone {
			delete(deployments, container)
		}
		var err error
		if instance.Status.ChallengeSnapshot, err = pinned.Encode(testRing, instance.UID); err != nil {
			t.Fatal(err)
		}
		lost, err := manifests.StoredSnapshot(instance, nil)
		if err != nil || lost.Seal != manifests.SealLost {
			t.Fatalf("%+v, error %v", lost, err)
		}

		o := status.Observed{
			Candidate: status.Candidate{Instance: instance, Challenge: tc.challenge, Pinned: lost}, Deployments: deployments, Policies: r.Config.Challenge.NetworkPolicy,
		}
		planned, err := r.workloads(&o, r.inputs(o), nil)
		if missing := (*status.LostError)(nil); tc.missing != "" {
			if !errors.As(err, &missing) || missing.Container != tc.missing || planned != nil {
				t.Errorf("%s: %v, error %v", name, planned, err)
			}
			continue
		}
		if err != nil || len(planned) != 2 {
			t.Errorf("%s: %d Deployments, error %v", name, len(planned), err)
			continue
		}
		if found := o.Pinned.Seal != manifests.SealLost; found != tc.found {
			t.Errorf("%s: found %v", name, found)
		}
		for _, d := range planned {
			if text := asJSON(t, d.Spec.Template.Spec.Containers[0]); !strings.Contains(text, tc.want) {
				t.Errorf("%s: %s", name, text)
			}
			live := deployments[d.Name]
			if sum, err := apply.PlanChecksum(r.Writer, owner, d); live != nil && (err != nil || sum != live.Annotations[apply.ChecksumAnnotation(owner.Annotation)]) {
				t.Errorf("%s: the pods of %s restart", name, d.Name)
			}
		}
	}
}
