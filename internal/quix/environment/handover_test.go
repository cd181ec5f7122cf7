package environment

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		"status dropped by the older operator": {func(e *quixv1.Environment, ns *corev1.Namespace) {
			ns.Annotations[quixv1.AnnotationUID] = string(e.UID)
		}, true},
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
		if problem != nil && ns.Annotations[quixv1.AnnotationUID] == "" && !strings.Contains(problem.Message, "hand it over: kubectl label namespace ") {
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

// A namespace that is taken over already is not written again.
func TestNamespaceIsTakenOverOnce(t *testing.T) {
	env := testEnvironment()
	ns := namespace(Inputs{Environment: env})
	ns.UID = env.Status.NamespaceUID
	ns.Annotations[quixv1.AnnotationUID] = string(env.UID)
	if handedOver(env, ns) || !namespaceOwner(env).Owns(ns) {
		t.Error("it is taken over again")
	}
}

func TestNamespaceOfAnEnvironmentThatIsGoneCanBeHandedOver(t *testing.T) {
	env := testEnvironment()
	ns := ownNamespace(env)
	ns.Annotations[quixv1.AnnotationUID] = "uid-b"
	for _, gone := range []bool{false, true} {
		problem := checkNamespace(env, Observed{Namespace: ns, HolderGone: gone}, nil)
		if problem == nil || problem.Reason != quixv1.ReasonNamespaceOwnershipConflict || strings.Contains(problem.Message, "--overwrite") != gone {
			t.Errorf("gone %t: %+v", gone, problem)
		}
	}
	delete(ns.Labels, quixv1.LabelManagedBy)
	if problem := checkNamespace(env, Observed{Namespace: ns}, nil); problem.Reason != quixv1.ReasonNamespaceNotManaged || !strings.Contains(problem.Message, handOver(env, ns)) {
		t.Errorf("released: %+v", problem)
	}
	binding := roleBinding(Inputs{Environment: env})
	binding.Annotations = map[string]string{quixv1.AnnotationUID: "uid-b"}
	if !bindingHandedOver(env, Inputs{Environment: env, Bound: binding}) {
		t.Error("the restored binding is not taken over")
	}
}

// crd answers with a CRD that is being deleted, or not.
type crd struct {
	client.Reader
	deleting bool
}

func (c crd) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetName(key.Name)
	if now := metav1.NewTime(noon); c.deleting {
		o.SetDeletionTimestamp(&now)
	}
	return nil
}

func TestDeletionUnderACRDThatIsDeletedNeedsAConfirmation(t *testing.T) {
	env := testEnvironment()
	confirmed := env.DeepCopy()
	confirmed.Annotations = map[string]string{quixv1.AnnotationConfirmDeletion: "true"}
	for name, tc := range map[string]struct {
		env      *quixv1.Environment
		deleting bool
		seen     types.UID
		want     bool
	}{
		"before the operator came":      {env, true, "", true},
		"one of the same name was seen": {env, true, "another", true},
		"while it ran":                  {env, true, env.UID, false},
		"the CRD stays":                 {env, false, "", false},
		"confirmed":                     {confirmed, true, "", false},
	} {
		r := &Reconciler{}
		r.Writer.Live = crd{deleting: tc.deleting}
		if tc.seen != "" {
			r.live.Store(client.ObjectKeyFromObject(tc.env), tc.seen)
		}
		if got, err := r.unconfirmed(t.Context(), tc.env); err != nil || got != tc.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
	computeUnconfirmed(env, noon)
	if !meta.IsStatusConditionTrue(env.Status.Conditions, quixv1.ConditionStalled) || env.Status.Phase != quixv1.PhaseDeleting ||
		!strings.Contains(env.Status.Message, "kubectl annotate environment team-a "+quixv1.AnnotationConfirmDeletion+"=true") {
		t.Errorf("%+v", env.Status)
	}
}

// The namespace stays, so the binding would, too.
func TestBindingThatCannotBeDeletedInAForeignNamespaceIsReported(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "rolebindings"}, "alpha-quix-crb", errors.New("policy"))
	for _, notOwned := range []bool{false, true} {
		env := testEnvironment()
		computeDeleting(env, Deletion{Namespace: ownNamespace(env), NotOwned: notOwned, UnbindErr: forbidden}, noon)
		stalled := meta.FindStatusCondition(env.Status.Conditions, quixv1.ConditionStalled)
		if (stalled != nil) != notOwned || notOwned && stalled.Reason != quixv1.ReasonRoleBindingDeletionFailed ||
			strings.Contains(env.Status.Message, "kubectl -n alpha-qdep delete rolebinding alpha-quix-crb") != notOwned {
			t.Errorf("not owned %t: %+v", notOwned, env.Status)
		}
	}
}
