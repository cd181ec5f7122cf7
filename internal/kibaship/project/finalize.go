package project

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/usage"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// finalize carries out the deletion of a Project, from whichever state it is in: first it revokes the rights of the
// ServiceAccount, then it deletes the namespace. It is done when the namespace is gone, or turns out to belong to
// another owner, in which case the namespace and its content stay untouched. It may be called any number of times, and begins
// from what exists. The finalizer stays until a reconciliation finds no own namespace and no binding in the namespace of Tekton.
func (r *Reconciler) finalize(ctx context.Context, p *kibashipv1.Project, now time.Time) (done bool, never time.Duration, err error) {
	before := p.DeepCopy()
	e := Deletion{TektonErr: r.leaveTekton(ctx, p)}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: naming.Namespace(p.Name)}}
	exists, err := apply.Find(ctx, r.Writer, ns)
	if err != nil {
		return false, never, errors.Join(err, e.TektonErr)
	}
	if exists {
		e.Namespace = ns
		e.Foreign = !namespaceOwner(p).Owns(ns)
	}
	ours := exists && !e.Foreign
	if ours && ns.DeletionTimestamp == nil {
		e.DeleteErr = errors.Join(r.revoke(ctx, p), apply.Delete(ctx, r.Client, ns))
		// The namespace could not be deleted, so its pods go on: their network policy must stay in force.
		for _, policy := range networkPolicies(r.inputs(p, Observed{})) {
			if e.DeleteErr == nil {
				break // it goes with the namespace, after the last pod
			}
			if _, err := apply.Apply(ctx, r.Writer, ownerFor(p), policy); err != nil {
				e.DeleteErr = errors.Join(e.DeleteErr, fmt.Errorf("put the network policy back: %w", err))
			}
		}
	}
	if apierrors.IsConflict(e.TektonErr) || apierrors.IsConflict(e.DeleteErr) {
		return false, never, errors.Join(e.TektonErr, e.DeleteErr) // another client wrote first: the next reconciliation observes it
	}

	computeDeleting(p, e, now)
	if err := r.kind.PatchStatus(ctx, before, p, now); err != nil {
		// A status that is refused does not keep a Project whose namespace is gone.
		if ours || outcome.Classify(err) != outcome.Rejected {
			return false, never, reconcile.Join(e.DeleteErr, err)
		}
	}
	r.reportDeletion(before, p, e)
	if ours {
		return false, never, errors.Join(e.DeleteErr, e.TektonErr) // the namespace's events trigger the next reconciliation
	}
	return e.TektonErr == nil, never, e.TektonErr
}

// leaveTekton deletes the Project's binding in the namespace of Tekton. Without that namespace it sends no request to the
// API server: when many Projects are deleted together, each is reconciled several times.
func (r *Reconciler) leaveTekton(ctx context.Context, p *kibashipv1.Project) error {
	ns, err := apply.Found(ctx, r.Client, client.ObjectKey{Name: naming.TektonNamespace}, &corev1.Namespace{})
	if ns == nil || err != nil {
		return err
	}
	return r.deleteOurs(ctx, p, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{
		Namespace: naming.TektonNamespace, Name: naming.TektonBinding(p.Name),
	}})
}

// revoke deletes the rights in the namespace before the namespace, so that no account works in it any more. The operator
// may lack the rights to do it, where its own binding was deleted: then they go with the namespace.
func (r *Reconciler) revoke(ctx context.Context, p *kibashipv1.Project) error {
	in := metav1.ObjectMeta{Namespace: naming.Namespace(p.Name)}
	binding, role, account := &rbacv1.RoleBinding{ObjectMeta: in}, &rbacv1.Role{ObjectMeta: in}, &corev1.ServiceAccount{ObjectMeta: in}
	binding.Name, role.Name, account.Name = naming.AdminBinding(p.Name), naming.AdminRole(p.Name), naming.ServiceAccount(p.Name)
	var errs []error
	for _, o := range []client.Object{binding, role, account} {
		if err := r.deleteOurs(ctx, p, o); !apierrors.IsForbidden(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// deleteOurs deletes an object that carries the Project's UID. The cache leaves out one that has lost its label, so the API
// server is asked too, and later reads do not wait for a deletion that the cache may never show.
func (r *Reconciler) deleteOurs(ctx context.Context, p *kibashipv1.Project, o client.Object) error {
	exists, err := apply.Find(ctx, r.Writer, o)
	if err != nil || !exists || !ownerFor(p).Owns(o) || o.GetDeletionTimestamp() != nil {
		return err
	}
	return apply.Delete(ctx, r.Client, o, client.DisableReadYourWritesConsistency)
}

// goesWith reports whether Kubernetes deletes a namespace when a Project is gone: it has no other owner.
func goesWith(ns *corev1.Namespace, p *kibashipv1.Project) bool {
	return len(ns.OwnerReferences) > 0 && !slices.ContainsFunc(ns.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID != p.UID })
}

// computeDeleting writes the status of a Project that is being deleted.
func computeDeleting(p *kibashipv1.Project, e Deletion, now time.Time) {
	s := &p.Status
	s.ObservedGeneration = p.Generation
	s.Phase = kibashipv1.ProjectPending
	reason, message := kibashipv1.ReasonTerminating, "The namespace is gone"
	switch {
	case e.Namespace == nil:
	case e.Foreign && goesWith(e.Namespace, p):
		reason, message = kibashipv1.ReasonNamespaceConflict, fmt.Sprintf(
			"Namespace %s does not carry the UID of this Project. It is left to the garbage collector, which deletes it with the Project that owns it", e.Namespace.Name)
	case e.Foreign:
		reason, message = kibashipv1.ReasonNamespaceConflict, fmt.Sprintf("Namespace %s does not belong to this Project and stays", e.Namespace.Name)
	case e.DeleteErr != nil:
		reason, message = kibashipv1.ReasonDeletionBlocked, e.DeleteErr.Error()
	case finalizer.HeldBack(e.Namespace) != "":
		reason, message = kibashipv1.ReasonDeletionBlocked, fmt.Sprintf("Namespace %s cannot be deleted: %s", e.Namespace.Name, finalizer.HeldBack(e.Namespace))
	default:
		message = fmt.Sprintf("Namespace %s is being deleted", e.Namespace.Name)
	}
	if e.Namespace == nil || e.Foreign {
		s.NamespaceName, s.Usage.Quota = "", nil
		usage.Update(&s.Usage, usage.Now{}, now)
	}
	tekton := "The Project is being deleted"
	if e.TektonErr != nil {
		tekton = "The binding in namespace " + naming.TektonNamespace + " cannot be deleted: " + e.TektonErr.Error()
		if e.Namespace == nil || e.Foreign {
			reason, message = kibashipv1.ReasonDeletionBlocked, tekton
		}
	}
	s.Message = message
	set := conditions.NewSetter(p, &s.Conditions, now)
	set(kibashipv1.ConditionNamespaceReady, metav1.ConditionFalse, reason, message)
	set(kibashipv1.ConditionAccessReady, metav1.ConditionFalse, kibashipv1.ReasonTerminating, "The Project is being deleted")
	set(kibashipv1.ConditionTektonIntegrated, metav1.ConditionFalse, kibashipv1.ReasonTerminating, tekton)
	reconcile.NotReady(kibashipv1.ReasonTerminating, "The Project is being deleted").SetOn(&s.Conditions, p.Generation, now)
}
