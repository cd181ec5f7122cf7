package environment

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

func TestNamespaceOfAnOlderOperatorIsTakenOver(t *testing.T) {
	env := testEnvironment()
	env.Status.NamespaceUID, env.Status.NamespaceTokenHash = "", ""
	old := namespace(Inputs{Environment: env})
	old.UID = "old"
	for name, tc := range map[string]struct {
		modify func(*quixv1.Environment, *corev1.Namespace)
		handed bool
	}{
		"as it was":               {func(*quixv1.Environment, *corev1.Namespace) {}, true},
		"its UID in the status":   {func(e *quixv1.Environment, _ *corev1.Namespace) { e.Status.NamespaceUID = "old" }, true},
		"another UID":             {func(e *quixv1.Environment, _ *corev1.Namespace) { e.Status.NamespaceUID = "other" }, false},
		"started by this version": {func(e *quixv1.Environment, _ *corev1.Namespace) { e.Status.NamespaceTokenHash = "digest" }, false},
		"not started":             {func(e *quixv1.Environment, _ *corev1.Namespace) { e.Status = quixv1.EnvironmentStatus{} }, false},
		"another ID":              {func(_ *quixv1.Environment, ns *corev1.Namespace) { ns.Labels[quixv1.LabelEnvironmentID] = "other" }, false},
		"no controller":           {func(_ *quixv1.Environment, ns *corev1.Namespace) { ns.OwnerReferences = nil }, false},
		"another controller":      {func(_ *quixv1.Environment, ns *corev1.Namespace) { ns.OwnerReferences[0].UID = "other" }, false},
		"another Kind":            {func(_ *quixv1.Environment, ns *corev1.Namespace) { ns.OwnerReferences[0].Kind = "Project" }, false},
		"another group": {func(_ *quixv1.Environment, ns *corev1.Namespace) {
			ns.OwnerReferences[0].APIVersion = "quix.example/v1"
		}, false},
		"an owner, no controller": {func(_ *quixv1.Environment, ns *corev1.Namespace) { ns.OwnerReferences[0].Controller = nil }, false},
		"another's UID":           {func(_ *quixv1.Environment, ns *corev1.Namespace) { ns.Annotations[quixv1.AnnotationUID] = "other" }, false},
	} {
		env, ns := env.DeepCopy(), old.DeepCopy()
		tc.modify(env, ns)
		if got := handedOver(env, ns); got != tc.handed {
			t.Errorf("%s: handed over %t, want %t", name, got, tc.handed)
		}
		problem := checkNamespace(env, Observed{Namespace: ns}, nil)
		if (problem == nil) != tc.handed {
			t.Errorf("%s: %v", name, problem)
		}
		if problem != nil && (strings.Contains(problem.Message, "continues when") || !strings.Contains(problem.Message, "elete this Environment")) {
			t.Errorf("%s: the message does not say what to do: %s", name, problem.Message)
		}
		if problem != nil && ns.Annotations[quixv1.AnnotationUID] == "" && !strings.Contains(problem.Message, "hand it over") {
			t.Errorf("%s: the message does not say how to hand it over: %s", name, problem.Message)
		}
	}
}

func TestNamespaceThatIsCollectedIsNotSaidToStay(t *testing.T) {
	env := testEnvironment()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(env)}}
	for _, collected := range []bool{false, true} {
		computeDeleting(env, Deletion{Namespace: ns, NotOwned: true, Collected: collected}, noon)
		message := env.Status.NamespaceStatus.Message
		if strings.Contains(message, "garbage collector deletes") != collected || strings.Contains(message, "is not deleted") == collected {
			t.Errorf("collected %t: %s", collected, message)
		}
	}
}
