package manifests

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/kit/naming"
)

// baselineCapabilities may be added at the Pod Security level baseline: https://kubernetes.io/docs/concepts/security/pod-security-standards/
var baselineCapabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
	"NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// namespace has no owner's label before a prepared instance is claimed: the label names the player.
func namespace(in Inputs) *corev1.Namespace {
	level := podSecurityLevel(in)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: in.Namespace(),
		Labels: in.withSource(map[string]string{
			bergv1.LabelManagedBy:                bergv1.ManagedBy,
			bergv1.LabelComponent:                bergv1.ComponentNamespace,
			bergv1.LabelChallenge:                naming.LabelValue(in.ChallengeName),
			bergv1.LabelChallengeNamespace:       in.ChallengeNamespace,
			bergv1.LabelInstanceID:               in.InstanceID,
			"pod-security.kubernetes.io/enforce": level,
			"pod-security.kubernetes.io/warn":    level,
			"pod-security.kubernetes.io/audit":   level,
		}),
		Annotations: map[string]string{
			bergv1.AnnotationInstance:  in.Name.String(),
			bergv1.AnnotationChallenge: in.ChallengeName,
		},
	}}
	if !in.Unclaimed {
		ns.Labels[bergv1.LabelOwnerID] = in.OwnerID
	}
	return ns
}

// podSecurityLevel is the strictest level that admits the pods of this plan. It is baseline unless the Challenge or the settings
// need more.
func podSecurityLevel(in Inputs) string {
	// The level baseline admits pods without a seccomp profile, but not pods with Unconfined.
	if in.Config.SeccompProfile == corev1.SeccompProfileTypeUnconfined {
		return "privileged"
	}
	for _, c := range in.Challenge.Containers {
		if c.Sandbox == bergv1.SandboxNested { // baseline admits no unmasked /proc
			return "privileged"
		}
		for _, added := range c.AdditionalCapabilities {
			if !slices.Contains(baselineCapabilities, rules.Capability(added)) {
				return "privileged"
			}
		}
	}
	return "baseline"
}

// ReadInstanceUID returns the UID of the instance that a namespace was created for. provable says whether its name and its
// labels agree with that UID.
func ReadInstanceUID(ns *corev1.Namespace) (uid types.UID, provable bool) {
	uid = types.UID(ns.Annotations[bergv1.AnnotationInstanceUID])
	return uid, uid != "" && strings.HasPrefix(ns.Name, NamespacePrefix) &&
		ns.Labels[bergv1.LabelManagedBy] == bergv1.ManagedBy && ns.Labels[bergv1.LabelComponent] == bergv1.ComponentNamespace
}
