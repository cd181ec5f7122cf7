package check

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// NamespacePrefix begins the names of the namespaces that solvers run in; the UID of the
// ChallengeCheck follows it.
const NamespacePrefix = "berg-check-"

// namespaceName returns the name of the namespace in which the solver of a check runs.
func namespaceName(c *bergv1.ChallengeCheck) string { return NamespacePrefix + string(c.UID) }

// checkNamespace holds the solver of one check and nothing else. No pod in it may have rights on
// its node.
func checkNamespace(c *bergv1.ChallengeCheck) *corev1.Namespace {
	m := meta(c, "")
	m.Name, m.Namespace = namespaceName(c), ""
	for _, mode := range []string{"enforce", "warn", "audit"} {
		m.Labels["pod-security.kubernetes.io/"+mode] = "restricted"
	}
	m.Annotations = map[string]string{bergv1.CheckAnnotation: c.Namespace + "/" + c.Name}
	return &corev1.Namespace{ObjectMeta: m}
}

// meta is the metadata of an object in the namespace of a check.
func meta(c *bergv1.ChallengeCheck, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: namespaceName(c),
		Labels: map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentCheck},
	}
}

// pullSecret returns a copy of the Secret with which the operator pulls the images of challenges.
func pullSecret(c *bergv1.ChallengeCheck, source *corev1.Secret) *corev1.Secret {
	copied := &corev1.Secret{ObjectMeta: meta(c, source.Name), Type: source.Type, Data: source.Data}
	ownerFor(c).SetOn(copied)
	return copied
}
