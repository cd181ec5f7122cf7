package status

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

func podWithoutFlag(owner string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{bergv1.LabelContainer: "web", bergv1.LabelOwnerID: owner}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: createContainerConfigError}},
		}}},
	}
}

func TestAContainerThatWaitsForItsFlag(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	flag := &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}
	late := &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/run/flag/flag.txt"}, Late: bergv1.LateFile}
	for name, tc := range map[string]struct {
		prepared bool
		flag     *bergv1.DynamicFlag
		taken    time.Duration // since it was taken over; 0: it was not
		owner    string
		ready    bool
		broken   string
		notified bool
		delay    time.Duration
	}{
		"is as ready as it can be while there is no player":           {prepared: true, flag: flag, ready: true},
		"waits for something else, if it needs no flag":               {prepared: true, broken: createContainerConfigError},
		"or may have it late":                                         {prepared: true, flag: late, broken: createContainerConfigError},
		"starts as soon as the kubelet is notified":                   {flag: flag, taken: time.Second, notified: true, delay: flagInterval},
		"is notified again":                                           {flag: flag, taken: time.Second, owner: "o", notified: true, delay: flagInterval},
		"has a problem, if it does not find its flag for long":        {flag: flag, taken: time.Minute, owner: "o", broken: createContainerConfigError},
		"a pod that replaced another one gets its owner, at any time": {flag: flag, taken: time.Hour, notified: true, broken: createContainerConfigError},
		"of an instance that was not prepared has its problem":        {flag: flag, broken: createContainerConfigError},
	} {
		o := Observed{Candidate: Candidate{
			Prepared: tc.prepared, Instance: &bergv1.ChallengeInstance{Spec: bergv1.ChallengeInstanceSpec{OwnerID: "o"}},
			Pinned: &manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "web", DynamicFlag: tc.flag}}},
		}, Pods: []corev1.Pod{podWithoutFlag(tc.owner)}}
		if tc.taken > 0 {
			o.Instance.Status.PreparedFrom, o.Instance.Status.StartedAt = "p", &metav1.Time{Time: now.Add(-tc.taken)}
		}
		got := checkPods(o, now)
		if got.ready != tc.ready || got.broken != tc.broken {
			t.Errorf("%s: ready %v, broken %q", name, got.ready, got.broken)
		}
		if pods, delay := ToNotify(o, now); len(pods) > 0 != tc.notified || delay != tc.delay {
			t.Errorf("%s: notified %d pods, and again after %s", name, len(pods), delay)
		}
	}
}

func TestClaimable(t *testing.T) {
	whole := func() *bergv1.ChallengeInstance {
		i := &bergv1.ChallengeInstance{}
		i.Status = bergv1.ChallengeInstanceStatus{ReadyAt: &metav1.Time{}, NamespaceUID: "n", Phase: bergv1.PhaseRunning, Conditions: []metav1.Condition{
			{Type: bergv1.ConditionHealthy, Status: metav1.ConditionTrue}, {Type: bergv1.ConditionUpToDate, Status: metav1.ConditionTrue},
		}}
		return i
	}
	if !Claimable(whole()) {
		t.Error("a whole one is not claimable")
	}
	for name, breaks := range map[string]func(*bergv1.ChallengeInstance){
		"it ends":              func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{} },
		"it is claimed":        func(i *bergv1.ChallengeInstance) { i.Status.ClaimedBy = &bergv1.InstanceReference{} },
		"it was never ready":   func(i *bergv1.ChallengeInstance) { i.Status.ReadyAt = nil },
		"its namespace":        func(i *bergv1.ChallengeInstance) { i.Status.NamespaceUID = "" },
		"it is being repaired": func(i *bergv1.ChallengeInstance) { i.Status.Phase = bergv1.PhaseCreating },
		"a pod is not ready":   func(i *bergv1.ChallengeInstance) { i.Status.Conditions[0].Status = metav1.ConditionFalse },
		"it is not up to date": func(i *bergv1.ChallengeInstance) { i.Status.Conditions[1].Status = metav1.ConditionFalse },
	} {
		i := whole()
		if breaks(i); Claimable(i) {
			t.Errorf("%s, and it is claimable", name)
		}
	}
}
