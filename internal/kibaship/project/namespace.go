package project

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
)

// The labels of Pod Security admission.
const (
	labelEnforce = "pod-security.kubernetes.io/enforce"
	labelWarn    = "pod-security.kubernetes.io/warn"
)

func namespace(in Inputs) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: in.meta("", naming.Namespace(in.Name))}
	if level := string(in.Spec.PodSecurity); level != "" {
		ns.Labels[labelEnforce], ns.Labels[labelWarn] = level, level
	}
	// The admission policy berg-operator-kibaship-confined-pods selects namespaces by this label.
	if in.Spec.NetworkPolicy != nil {
		ns.Labels[kibashipv1.LabelConfined] = "true"
	}
	// A Project has no namespace, so it can own one. Should its finalizer be taken off by
	// force, the garbage collector deletes the namespace.
	ns.OwnerReferences = []metav1.OwnerReference{{
		APIVersion:         kibashipv1.GroupVersion.String(),
		Kind:               "Project",
		Name:               in.Name,
		UID:                in.UID,
		Controller:         ptr.To(true),
		BlockOwnerDeletion: ptr.To(true),
	}}
	return ns
}
