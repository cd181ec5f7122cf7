package challengeinstance

import (
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// What tests need of an instance.

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

func isFrozen(i *bergv1.ChallengeInstance) {
	i.Annotations = map[string]string{bergv1.AnnotationFrozen: "2025-06-01T12:00:00Z"}
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

func pod(container string, ready bool) corev1.Pod {
	is := corev1.ConditionFalse
	if ready {
		is = corev1.ConditionTrue
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{bergv1.LabelContainer: container}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}},
	}
}

func waitingPod(container, reason string) corev1.Pod {
	p := pod(container, false)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}}}
	return p
}

func webOnly() manifests.Snapshot {
	return manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "i"}}}
}

func challengeOf(s manifests.Snapshot) *bergv1.Challenge {
	return &bergv1.Challenge{Spec: bergv1.ChallengeSpec{Containers: s.Containers, AllowOutboundTraffic: s.AllowOutboundTraffic}}
}

// candidate is an instance named after its UID that was created some seconds after
// noon and can be built.
func candidate(uid string, second int, modify ...func(*status.Candidate)) status.Candidate {
	i := testInstance(func(i *bergv1.ChallengeInstance) {
		i.Name, i.UID = uid, types.UID(uid)
		i.CreationTimestamp = metav1.Time{Time: noon.Add(time.Duration(second) * time.Second)}
	})
	c := status.Candidate{Instance: i, Challenge: challengeOf(webOnly())}
	for _, m := range modify {
		m(&c)
	}
	return c
}

func namespaceOf(owner types.UID, modify ...func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: manifests.NamespaceName("a1b2c3d4-e5f6-7890-abcd-ef1234567890")}}
	ownership.Owner{Annotation: bergv1.AnnotationInstanceUID, UID: owner}.SetOn(n)
	for _, m := range modify {
		m(n)
	}
	return n
}

func failure(since time.Duration, message string) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: message,
		LastTransitionTime: metav1.Time{Time: noon.Add(-since)},
	}
}

func deploymentWith(retried string, conditions ...appsv1.DeploymentCondition) *appsv1.Deployment {
	d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: conditions}}
	if retried != "" {
		d.Annotations = map[string]string{bergv1.AnnotationRetriedAt: retried}
	}
	return d
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

// allotNodePorts plays the API server's part in a plan.
func allotNodePorts(all []*corev1.Service) []*corev1.Service {
	next := int32(30000)
	out := make([]*corev1.Service, 0, len(all))
	for _, s := range all {
		s = s.DeepCopy()
		if s.Spec.Type == corev1.ServiceTypeNodePort {
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].NodePort = next
				next++
			}
		}
		out = append(out, s)
	}
	return out
}

func asObjects[T client.Object](in []T) []client.Object {
	out := make([]client.Object, 0, len(in))
	for _, o := range in {
		out = append(out, o)
	}
	return out
}

func typeName(o any) string { return reflect.TypeOf(o).String() }
