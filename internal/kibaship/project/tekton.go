package project

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/identity"
)

const (
	// tektonClusterRole holds the operator's rights in the namespace of Tekton, once it has bound the
	// role there: to create the shared Role, and to grant its rules, for which Kubernetes requires
	// holding them.
	tektonClusterRole = "kibaship-tekton-integration"
	// tektonOperatorBinding binds it. All Projects share it, so none owns it.
	tektonOperatorBinding = "kibaship-operator-tekton-binding"
)

// shared is the metadata of objects that all Projects share in the namespace of Tekton.
func shared(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: naming.TektonNamespace, Name: name,
		Labels: map[string]string{kibashipv1.LabelManagedBy: kibashipv1.ManagedBy},
		Annotations: map[string]string{
			kibashipv1.AnnotationCreatedBy: kibashipv1.ManagedBy,
			kibashipv1.AnnotationPurpose:   "tekton-integration",
		},
	}
}

func sharedBinding(operator rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: shared(tektonOperatorBinding),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tektonClusterRole},
		Subjects:   []rbacv1.Subject{operator},
	}
}

func tasksReader() *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: shared(naming.TasksReader),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"tekton.dev"}, Resources: []string{"tasks"}, Verbs: []string{"get", "list", "watch"},
		}},
	}
}

// tektonBinding lets the Project's ServiceAccount read the Tasks in the namespace of Tekton.
func tektonBinding(in Inputs) *rbacv1.RoleBinding {
	meta := in.meta(naming.TektonNamespace, naming.TektonBinding(in.Name))
	meta.Annotations[kibashipv1.AnnotationPurpose] = "tekton-integration"
	return &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: naming.TasksReader},
		Subjects:   []rbacv1.Subject{projectAccount(in)},
	}
}

// integrate creates the objects that Projects need in the namespace of Tekton. Shared objects are
// created only where they are missing; an object that an administrator made stays unchanged, and in
// the operator's own binding only the operator's subject is restored. The operator's own binding comes first, because the other
// two are written by its rights.
func (r *Reconciler) integrate(ctx context.Context, p *kibashipv1.Project, in Inputs) error {
	if err := r.bindOperator(ctx, in.Operator); err != nil {
		return err
	}
	if err := identity.WhenGranted(ctx, grantAttempts, func() error { return r.createMissing(ctx, tasksReader()) }); err != nil {
		return err
	}
	w := r.Writer
	w.Replace = true
	return identity.WhenGranted(ctx, grantAttempts, func() error {
		_, err := apply.Apply(ctx, w, ownerFor(p), tektonBinding(in))
		return err
	})
}

// bindOperator makes the shared binding, or puts the operator back into it. The update carries the resourceVersion that was read:
// one that has changed since gives a conflict.
func (r *Reconciler) bindOperator(ctx context.Context, operator rbacv1.Subject) error {
	live := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: naming.TektonNamespace, Name: tektonOperatorBinding}}
	there, err := apply.Find(ctx, r.Writer, live)
	if err != nil {
		return err
	}
	if there && cache.Reduced(live) {
		// The cached copy has no subjects, and the subjects decide the write.
		if live, err = apply.Found(ctx, r.Writer.Live, client.ObjectKeyFromObject(live), &rbacv1.RoleBinding{}); err != nil {
			return err
		}
		there = live != nil
	}
	if !there {
		return r.createMissing(ctx, sharedBinding(operator))
	}
	repaired := withOperator(live, operator)
	if repaired == nil {
		return nil
	}
	return r.Client.Update(ctx, repaired, client.FieldOwner(r.Writer.Manager))
}

// withOperator returns the shared binding with the operator in it, nil where it is, or where the
// binding is not the operator's.
func withOperator(live *rbacv1.RoleBinding, operator rbacv1.Subject) *rbacv1.RoleBinding {
	ours := sharedBinding(operator)
	if live.Labels[kibashipv1.LabelManagedBy] != kibashipv1.ManagedBy || live.RoleRef != ours.RoleRef ||
		live.DeletionTimestamp != nil || slices.Contains(live.Subjects, operator) {
		return nil
	}
	repaired := live.DeepCopy()
	repaired.Subjects = append(repaired.Subjects, operator)
	return repaired
}

// createMissing makes an object where there is none of its name. Another Project may do the
// same at the same time.
func (r *Reconciler) createMissing(ctx context.Context, o client.Object) error {
	if there, err := apply.Find(ctx, r.Writer, o.DeepCopyObject().(client.Object)); err != nil || there {
		return err
	}
	err := r.Client.Create(ctx, o, client.FieldOwner(r.Writer.Manager))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
