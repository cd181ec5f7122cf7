package project

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

func TestNamespaceNeedsAProof(t *testing.T) {
	var secrets ownership.Tokens
	p := good()
	ns := ownNamespace(p)
	created := func(*corev1.Namespace) {}
	digest := secrets.Draw()
	for name, tc := range map[string]struct {
		status kibashipv1.ProjectStatus
		modify func(*corev1.Namespace)
		ours   bool
	}{
		"before the Project has a proof": {kibashipv1.ProjectStatus{}, created, false},
		"by its UID":                     {kibashipv1.ProjectStatus{NamespaceUID: "created", NamespaceName: ns.Name}, created, true},
		"another UID":                    {kibashipv1.ProjectStatus{NamespaceUID: "former", NamespaceName: ns.Name}, created, false},
		"without the secret":             {kibashipv1.ProjectStatus{NamespaceTokenHash: digest}, created, false},
		"with the digest":                {kibashipv1.ProjectStatus{NamespaceTokenHash: digest}, func(ns *corev1.Namespace) { ns.Annotations["platform.kibaship.com/namespace-token"] = digest }, false},
		"with the secret": {kibashipv1.ProjectStatus{NamespaceTokenHash: digest}, func(ns *corev1.Namespace) {
			ownership.Owner{Annotation: OwnershipLabels.Annotation(), Token: secrets.Token("", digest)}.SetTokenOn(ns)
		}, true},
		"by its name alone": {kibashipv1.ProjectStatus{NamespaceName: ns.Name}, created, false},
	} {
		p, ns := p.DeepCopy(), ns.DeepCopy()
		p.Status = tc.status
		tc.modify(ns)
		problem := checkNamespace(p, Observed{Namespace: ns})
		if (problem == nil) != tc.ours {
			t.Errorf("%s: %v", name, problem)
		}
		if problem != nil && !strings.Contains(problem.Message, "set status.namespaceUID of this Project") {
			t.Errorf("%s: the message does not say what to do: %s", name, problem.Message)
		}
	}

	p.Status = kibashipv1.ProjectStatus{NamespaceTokenHash: digest}
	computeStatus(p, State{NamespaceUID: "new"}, outcome.Problems{}, noon)
	if p.Status.NamespaceUID != "new" || p.Status.NamespaceTokenHash != "" || p.Status.NamespaceName == "" {
		t.Errorf("the namespace that was created is not in the status: %+v", p.Status)
	}
}
