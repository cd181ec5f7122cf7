package environment

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

func TestNamespaceNeedsAProof(t *testing.T) {
	var secrets ownership.Tokens
	digest := secrets.Draw()
	env := testEnvironment()
	ns := ownNamespace(env)
	ns.UID = "created"
	created := func(*corev1.Namespace) {}
	for name, tc := range map[string]struct {
		uid    types.UID
		digest string
		modify func(*corev1.Namespace)
		ours   bool
	}{
		"by its UID":         {"created", "", created, true},
		"another UID":        {"former", "", created, false},
		"without the secret": {"", digest, created, false},
		"with the digest":    {"", digest, func(ns *corev1.Namespace) { ns.Annotations[quixv1.AnnotationNamespaceToken] = digest }, false},
		"with the secret": {"", digest, func(ns *corev1.Namespace) {
			ownership.Owner{Annotation: quixv1.AnnotationUID, Token: secrets.Token("", digest)}.SetTokenOn(ns)
		}, true},
		"without a proof": {"", "", created, false},
	} {
		env, ns := env.DeepCopy(), ns.DeepCopy()
		env.Status.NamespaceUID, env.Status.NamespaceTokenHash = tc.uid, tc.digest
		tc.modify(ns)
		problem := checkNamespace(env, Observed{Namespace: ns}, nil)
		if (problem == nil) != tc.ours {
			t.Errorf("%s: %v", name, problem)
		}
		if problem != nil && !strings.Contains(problem.Message, "set status.namespaceUID of this Environment") {
			t.Errorf("%s: the message does not say what to do: %s", name, problem.Message)
		}
	}

	lost := env.DeepCopy()
	lost.Status = quixv1.EnvironmentStatus{}
	if namespaceOwner(lost).Owns(ns) {
		t.Error("an Environment that was not started owns a namespace")
	}
	env.Status.NamespaceTokenHash = digest
	computeStatus(env, State{NamespaceUID: "new"}, outcome.Problems{}, noon)
	if env.Status.NamespaceUID != "new" || env.Status.NamespaceTokenHash != "" {
		t.Errorf("the namespace that was created is not in the status: %+v", env.Status)
	}
}
