package prepull

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// NamespacePrefix begins the names of the namespaces in which images are pulled; the UID of the
// Challenge follows it.
const NamespacePrefix = "berg-prepull-"

func namespaceName(challenge types.UID) string { return NamespacePrefix + string(challenge) }

// ownerFor returns the owner of the objects that pull the images of a Challenge.
func ownerFor(challenge types.UID) ownership.Owner { return OwnershipLabels.For(challenge, nil) }

// findChallengeUID returns the UID of the Challenge that an object is for, from the name of its
// namespace, or its own name. "" unless the object has the annotation of that owner.
func findChallengeUID(o client.Object) types.UID {
	name := o.GetNamespace()
	if name == "" {
		name = o.GetName()
	}
	uid, ours := strings.CutPrefix(name, NamespacePrefix)
	if !ours || !ownerFor(types.UID(uid)).Owns(o) {
		return ""
	}
	return types.UID(uid)
}

// namespace holds the pulls of one Challenge and nothing else. No pod in it may have rights on its
// node.
func namespace(c *bergv1.Challenge) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(c.UID), Labels: map[string]string{}}}
	for _, mode := range []string{"enforce", "warn", "audit"} {
		ns.Labels["pod-security.kubernetes.io/"+mode] = "restricted"
	}
	ns.Annotations = map[string]string{bergv1.AnnotationChallenge: c.Namespace + "/" + c.Name}
	ownerFor(c.UID).SetOn(ns)
	return ns
}

// networkPolicy lets nothing in or out. Every network plugin that enforces policies enforces this
// one; nothing in the namespace runs anyway.
func networkPolicy(challenge types.UID) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName(challenge), Name: "closed"},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
	ownerFor(challenge).SetOn(p)
	return p
}

// maxSecretName leaves space for a version in the 253 characters of a name.
const maxSecretName = 236

// secretName returns the name of a copy of the pull secret: no two namespaces and no two versions
// of the source share one, so a Secret of that name is the copy. The operator may create Secrets and not read them, so the name
// must say everything that it needs to know about the content.
func secretName(ns types.UID, source *corev1.Secret) string {
	sum := sha256.Sum256([]byte(string(ns) + "/" + string(source.UID) + "/" + source.ResourceVersion))
	return strings.TrimRight(source.Name[:min(len(source.Name), maxSecretName)], "-.") + "-" + hex.EncodeToString(sum[:])[:12]
}

// pullSecret returns a copy of the Secret with which the operator pulls the images of challenges:
// the data alone, no labels or owner references of the source.
func pullSecret(challenge, ns types.UID, source *corev1.Secret) *corev1.Secret {
	copied := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName(challenge), Name: secretName(ns, source)},
		Type:       source.Type, Data: source.Data,
	}
	ownerFor(challenge).SetOn(copied)
	return copied
}
