package environment

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Inputs is all that the plan depends on: no clock, no randomness, no cluster.
type Inputs struct {
	// Environment is read for its metadata, its spec and the names in its status.
	Environment *quixv1.Environment
	// Bound is the present RoleBinding; nil if there is none.
	Bound  *rbacv1.RoleBinding
	Config config.Quix
}

// namespaceName returns the name of the environment's namespace, which never changes; "" before it is set.
func namespaceName(env *quixv1.Environment) string {
	if s := env.Status.NamespaceStatus; s != nil {
		return s.ResourceName
	}
	return ""
}

// roleBindingName returns the name of the environment's RoleBinding, which never changes; "" before it is set.
func roleBindingName(env *quixv1.Environment) string {
	if s := env.Status.RoleBindingStatus; s != nil {
		return s.ResourceName
	}
	return ""
}

func roleBindingKey(env *quixv1.Environment) types.NamespacedName {
	return types.NamespacedName{Namespace: namespaceName(env), Name: roleBindingName(env)}
}

// newRoleBindingName is the name of a new environment's RoleBinding.
func newRoleBindingName(id string) string { return id + "-quix-crb" }

// ownershipLabels are the labels of every object that belongs to an environment. Its namespace is found by its name
// among all namespaces, since the operator must see one of that name that belongs to another owner.
var ownershipLabels = ownership.Labels{Domain: quixv1.GroupVersion.Group, Owner: "environment"}

// RoleBindingLabels are the labels of the environment's RoleBinding.
var RoleBindingLabels = ownership.Labels{
	Domain: ownershipLabels.Domain, Owner: ownershipLabels.Owner,
	Found: map[string]string{quixv1.LabelManagedBy: quixv1.RoleBindingManagedBy},
}

// labelledOwner requires the labels too: other programs use them, and an administrator removes them to keep a namespace.
func labelledOwner(env *quixv1.Environment) ownership.Owner {
	return ownershipLabels.For(env.UID, identity(env, quixv1.ManagedBy))
}

// namespaceOwner requires the UID or the token of the status too, because others can create a namespace of that name first and
// copy its labels and annotations. An environment whose status has neither owns no namespace.
func namespaceOwner(env *quixv1.Environment) ownership.Owner {
	owner := labelledOwner(env)
	owner.Token = &ownership.Token{UID: env.Status.NamespaceUID, Digest: env.Status.NamespaceTokenHash}
	return owner
}

// roleBindingOwner requires only the UID: the operator restores the labels of a binding.
func roleBindingOwner(env *quixv1.Environment) ownership.Owner {
	return RoleBindingLabels.For(env.UID, nil)
}

// identity returns the labels that say to which environment an object belongs.
func identity(env *quixv1.Environment, managedBy string) map[string]string {
	return map[string]string{
		quixv1.LabelManagedBy:       managedBy,
		quixv1.LabelEnvironmentID:   env.Spec.ID,
		quixv1.LabelEnvironmentName: naming.LabelValue(env.Name),
	}
}

// protected are the keys that an Environment cannot set. The schema refuses most of them; this is for an Environment that
// was stored under another schema.
var protected = map[string]bool{
	quixv1.LabelManagedBy:         true,
	quixv1.LabelEnvironmentID:     true,
	quixv1.LabelEnvironmentName:   true,
	quixv1.LabelPlatform:          true,
	"kubernetes.io/metadata.name": true,
	"control-plane":               true,
	quixv1.AnnotationCreatedBy:    true,
	quixv1.AnnotationResourceName: true,
	quixv1.AnnotationUID:          true,
	quixv1.AnnotationApplied:      true,
	quixv1.AnnotationChecksum:     true,

	quixv1.AnnotationNamespaceToken: true,
}

// guarded returns the labels or annotations of an object: the requested ones that an Environment may
// set, and the enforced ones. The enforced keys win.
func guarded(asked, enforced map[string]string) map[string]string {
	out := make(map[string]string, len(asked)+len(enforced))
	for key, value := range asked {
		if rest, ours := strings.CutPrefix(key, quixv1.MetadataPrefix); ours && rest != "" && !protected[key] {
			out[key] = value
		}
	}
	maps.Copy(out, enforced)
	return out
}

// namespace lets no label or annotation of the spec replace one of the operator.
func namespace(in Inputs) *corev1.Namespace {
	env := in.Environment
	labels := identity(env, quixv1.ManagedBy)
	labels[quixv1.LabelPlatform] = quixv1.Platform
	for _, mode := range []string{"enforce", "warn", "audit"} {
		labels["pod-security.kubernetes.io/"+mode] = string(in.Config.PodSecurity)
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   namespaceName(env),
		Labels: guarded(env.Spec.Labels, labels),
		Annotations: guarded(env.Spec.Annotations, map[string]string{
			quixv1.AnnotationCreatedBy:    quixv1.ManagedBy,
			quixv1.AnnotationResourceName: env.Name,
		}),
		// An Environment is cluster-scoped, so it can own a namespace. If a client removes the finalizer, the garbage
		// collector deletes the namespace.
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion:         quixv1.GroupVersion.String(),
			Kind:               "Environment",
			Name:               env.Name,
			UID:                env.UID,
			Controller:         ptr.To(true),
			BlockOwnerDeletion: ptr.To(true),
		}},
	}}
}

// roleBinding has no owner reference: it is deleted with its namespace.
func roleBinding(in Inputs) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name:      roleBindingName(in.Environment),
			Namespace: namespaceName(in.Environment),
			Labels:    identity(in.Environment, quixv1.RoleBindingManagedBy),
		},
		RoleRef:  roleRef(in),
		Subjects: []rbacv1.Subject{platform(in)},
	}
	// An administrator may add other subjects. A binding that lacks the platform, or names another role, is created again.
	if hasRights(in) {
		binding.Subjects = slices.Clone(in.Bound.Subjects)
	}
	return binding
}

func platform(in Inputs) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: in.Config.ServiceAccountName, Namespace: in.Config.ServiceAccountNamespace}
}

// hasRights reports whether the platform has its rights already.
func hasRights(in Inputs) bool {
	return in.Bound != nil && !boundElsewhere(in) && slices.Contains(in.Bound.Subjects, platform(in))
}

func roleRef(in Inputs) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: in.Config.ClusterRoleName}
}

// boundElsewhere reports whether the RoleBinding names another role, as after a change of CLUSTER_ROLE_NAME.
func boundElsewhere(in Inputs) bool { return in.Bound != nil && in.Bound.RoleRef != roleRef(in) }

// removedSubjects returns the subjects that lose the rights of the RoleBinding.
func removedSubjects(in Inputs, binding *rbacv1.RoleBinding) []rbacv1.Subject {
	if in.Bound == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(in.Bound.Subjects), func(s rbacv1.Subject) bool { return slices.Contains(binding.Subjects, s) })
}
