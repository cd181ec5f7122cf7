package project

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/usage"
)

// Observed is everything outside the Project that decides what happens to it.
type Observed struct {
	// Operator is who the operator is to the API server: it binds itself in namespaces.
	Operator rbacv1.Subject
	// SameUUID are all Projects of its uuid, itself among them.
	SameUUID []kibashipv1.Project
	// Namespace of the Project's name, no matter to which Project it belongs; nil when there is none.
	Namespace *corev1.Namespace
	// Admin is the ClusterRole by which the operator works there; nil when there is none.
	Admin *rbacv1.ClusterRole
	// Extra are the rules that an administrator adds to the rules of bounded Projects; ExtraRefused names the ClusterRoles that are not added.
	Extra        []rbacv1.PolicyRule
	ExtraRefused []string
	// Tekton says whether its namespace and its API exist. False where TEKTON_MODE is off.
	Tekton bool
	// Quota is the Project's ResourceQuota; nil when there is none.
	Quota *corev1.ResourceQuota
	// Class is what spec.class names; nil if it does not exist. Classes are the names of all, for messages, where it does not.
	Class   *kibashipv1.ProjectClass
	Classes []string
	// Spec is the spec with the limits of the class and the defaults of the operator.
	Spec kibashipv1.ProjectSpec
	// Usage is how much there is in the namespace, and how much it asks for, without the quota.
	Usage usage.Now
	// MissingPolicy says which admission policy is not in force that the Project relies on; empty if none is missing. Bound and
	// Integrated are known only then.
	MissingPolicy string
	// Bound: the operator has its rights in the namespace. Integrated: both have theirs in the namespace of Tekton.
	Bound, Integrated bool
}

// State is what one reconciliation observed of a Project and did for it.
type State struct {
	Observed
	Mode config.TektonMode
	// NamespaceUID is the UID of the namespace; empty if it was not written.
	NamespaceUID     types.UID
	NamespaceCreated bool
}

// Deletion is what one reconciliation observed and did of a Project that is being deleted.
type Deletion struct {
	// Namespace of the Project's name; nil when it is gone.
	Namespace *corev1.Namespace
	// Foreign: it is not this Project's.
	Foreign bool
	// TektonErr says why the binding in the namespace of Tekton was not deleted, DeleteErr why the objects in
	// the namespace of the Project were not.
	TektonErr, DeleteErr error
}
