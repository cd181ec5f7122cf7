package project

import (
	"cmp"
	"maps"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Inputs is all that the plan depends on: no clock, no randomness, no cluster.
type Inputs struct {
	UID           types.UID
	Name          string
	UUID          string
	WorkspaceUUID string
	Spec          kibashipv1.ProjectSpec
	// Admin names the ClusterRole by which the operator works in the namespace.
	Admin string
	// Operator is who the operator is to the API server.
	Operator rbacv1.Subject
	// Extra are the rules that an administrator adds to the rules of bounded Projects.
	Extra []rbacv1.PolicyRule
	// Tekton: the Project is to be integrated with Tekton.
	Tekton bool
}

// OwnershipLabels are on all objects of a Project. Its namespace is found by its name, among
// all namespaces: a foreign one of that name must be seen.
var OwnershipLabels = ownership.Labels{
	Domain: "platform.kibaship.com", Owner: "project",
	Found: map[string]string{kibashipv1.LabelManagedBy: kibashipv1.ManagedBy},
}

// ownerFor is the UID alone: labels of what is in the namespace are put back.
func ownerFor(p *kibashipv1.Project) ownership.Owner { return OwnershipLabels.For(p.UID, nil) }

// labelledOwner asks for the uuid too: taking the label off is how an administrator takes a
// namespace out of our hands.
func labelledOwner(p *kibashipv1.Project) ownership.Owner {
	return OwnershipLabels.For(p.UID, map[string]string{kibashipv1.LabelUUID: p.Labels[kibashipv1.LabelUUID]})
}

// namespaceOwner requires the UID or the token of the status too, because others can create a namespace of that name first and
// copy its labels and annotations. A Project whose status has neither owns no namespace.
func namespaceOwner(p *kibashipv1.Project) ownership.Owner {
	owner := labelledOwner(p)
	owner.Token = &ownership.Token{UID: p.Status.NamespaceUID, Digest: p.Status.NamespaceTokenHash}
	return owner
}

// labels are those of every object of a Project.
func (in Inputs) labels() map[string]string {
	labels := map[string]string{
		kibashipv1.LabelManagedBy:   kibashipv1.ManagedBy,
		kibashipv1.LabelProjectName: in.Name,
		kibashipv1.LabelUUID:        in.UUID,
	}
	if in.WorkspaceUUID != "" {
		labels[kibashipv1.LabelWorkspaceUUID] = in.WorkspaceUUID
	}
	return labels
}

func (in Inputs) meta(tenant, name string, extra ...map[string]string) metav1.ObjectMeta {
	labels := in.labels()
	for _, m := range extra {
		maps.Copy(labels, m)
	}
	return metav1.ObjectMeta{
		Namespace: tenant, Name: name, Labels: labels,
		Annotations: map[string]string{
			kibashipv1.AnnotationCreatedBy: kibashipv1.ManagedBy,
			kibashipv1.AnnotationProject:   in.Name,
		},
	}
}

// ours returns metadata of an object in the Project's namespace.
func (in Inputs) ours(name string) metav1.ObjectMeta {
	return in.meta(naming.Namespace(in.Name), name)
}

// effectiveSpec is the spec of a Project with the limits of its class, nil for none, and the operator's defaults. What the
// Project itself says wins over its class, and the class over the settings.
func (r *Reconciler) effectiveSpec(p *kibashipv1.Project, class *kibashipv1.ProjectClass) kibashipv1.ProjectSpec {
	spec := p.Spec
	if class != nil {
		if len(spec.Quota) == 0 {
			spec.Quota = class.Spec.Quota
		}
		spec.ContainerLimits = cmp.Or(spec.ContainerLimits, class.Spec.ContainerLimits)
	}
	if spec.PodSecurity == "" && r.Config.PodSecurity != config.PodSecurityPrivileged {
		spec.PodSecurity = kibashipv1.PodSecurity(r.Config.PodSecurity)
	}
	return spec
}

func (r *Reconciler) inputs(p *kibashipv1.Project, o Observed) Inputs {
	return Inputs{
		UID: p.UID, Name: p.Name, Spec: o.Spec,
		UUID: p.Labels[kibashipv1.LabelUUID], WorkspaceUUID: p.Labels[kibashipv1.LabelWorkspaceUUID],
		Admin: r.Config.ProjectAdmin, Operator: o.Operator, Extra: o.Extra,
		Tekton: o.Tekton && r.Config.Tekton != config.TektonOff,
	}
}
