// Package access gives the operator a right in the namespaces of instances that need it, and nowhere else. An administrator installs
// a ClusterRole, the right to bind it, and an admission policy that limits the bindings to these namespaces and to the operator.
package access

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/identity"
)

// Right is a right that the operator binds to itself.
type Right struct {
	// Role is the name of the ClusterRole, and of the admission policy that limits its bindings.
	Role string
	// Binding is the name of the RoleBinding, and Component its label.
	Binding, Component string
	// Attributes are the right itself.
	Attributes authorizationv1.ResourceAttributes
	// Folder has the role and the policy, below config, and Setting is the setting that needs them.
	Folder, Setting string
}

// Access is the operator's use of a Right.
type Access struct {
	Right
	// Client writes.
	Client client.Client
	// Identity is the account to which the right is given.
	Identity *identity.Identity
	// everywhere: the right is granted for all namespaces, and nothing need be bound.
	everywhere bool
	// policy limits the right to bind. It is nil if nothing need be bound.
	policy *admissionpolicy.Policy
}

// Permitted makes sure of the right, and of more rights that its use needs, or returns an error that names the first one that the
// operator lacks. Without it a watch that is forbidden would keep the operator from becoming ready, and no message would say why.
func (a *Access) Permitted(ctx context.Context, direct client.Client, rights ...authorizationv1.ResourceAttributes) (err error) {
	if a.everywhere, err = identity.May(ctx, direct, a.Attributes); err != nil {
		return a.failed(err)
	}
	if !a.everywhere {
		rights = append(rights,
			authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "rolebindings", Verb: "create"},
			authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: a.Role, Verb: "bind"})
		for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
			for _, verb := range []string{"list", "watch"} {
				rights = append(rights, authorizationv1.ResourceAttributes{Group: admissionregistrationv1.GroupName, Resource: resource, Name: a.Role, Verb: verb})
			}
		}
	}
	lacks, err := identity.Lacks(ctx, direct, rights)
	if err != nil {
		return a.failed(err)
	}
	if lacks != "" {
		return fmt.Errorf("%s is set and the operator may not %s: apply config/%s first, or remove the setting", a.Setting, lacks, a.Folder)
	}
	return nil
}

func (a *Access) failed(err error) error {
	return fmt.Errorf("ask for the rights that %s needs: %w", a.Setting, err)
}

// Follow watches the admission policy without which nothing is bound. It is called after Permitted.
func (a *Access) Follow(ctx context.Context, policies *admissionpolicy.Policies) (err error) {
	if !a.everywhere {
		a.policy, err = policies.Follow(ctx, a.Role, "kubectl apply -k config/"+a.Folder)
	}
	return err
}

// Grant gives the operator the right in the namespace of an instance. The binding is deleted with the namespace. While the
// admission policy is missing, it returns an error that says so. The API server may need a moment until the binding has an
// effect, so the first use of the right is repeated: see identity.WhenGranted.
func (a *Access) Grant(ctx context.Context, instance types.UID, namespace string) error {
	if a.everywhere {
		return nil
	}
	missing, err := admissionpolicy.Missing(ctx, a.policy)
	if err != nil {
		return err
	}
	if missing != "" {
		return errors.New(missing)
	}
	me, err := a.Identity.Subject(ctx)
	if err != nil {
		return err
	}
	err = a.Client.Create(ctx, a.binding(instance, namespace, me), client.DisableReadYourWritesConsistency)
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // if it is another one, the first use of the right names what is missing
	default:
		return err
	}
}

func (a *Access) binding(instance types.UID, namespace string, me rbacv1.Subject) *rbacv1.RoleBinding {
	b := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: a.Binding,
			Labels: map[string]string{bergv1.LabelComponent: a.Component},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: a.Role},
		Subjects: []rbacv1.Subject{me},
	}
	manifests.OwnershipLabels.For(instance, nil).SetOn(b)
	return b
}
