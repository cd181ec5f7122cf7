package environment

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// crdName is the name of the CRD of Environments.
const crdName = "environments.quix.io"

// finalize carries out the deletion of an environment, from whichever state it is in: first it revokes the platform's
// rights, then it deletes the namespace. It is done when the namespace is gone, or turns out to belong to another
// environment. Each call begins from what exists, so it may be repeated at any point.
func (r *Reconciler) finalize(ctx context.Context, env *quixv1.Environment, now time.Time) (done bool, never time.Duration, err error) {
	if namespaceName(env) == "" { // deleted before anything was made
		return true, never, nil
	}
	before := env.DeepCopy()
	e := Deletion{}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(env)}}
	exists, err := apply.Find(ctx, r.Writer, ns)
	if err != nil {
		return false, never, err
	}
	if exists {
		e.Namespace = ns
		e.NotOwned = !namespaceOwner(env).Owns(ns) && !handedOver(env, ns)
		e.Collected = e.NotOwned && controls(env, ns)
	}
	ours := exists && !e.NotOwned
	if ours && ns.DeletionTimestamp == nil {
		if e.Unconfirmed, err = r.unconfirmed(ctx, env); err != nil {
			return false, never, err
		}
	}
	if e.Unconfirmed {
		computeUnconfirmed(env, now)
		err := r.kind.PatchStatus(ctx, before, env, now)
		r.reportDeletion(before, env, e)
		return false, never, err
	}
	// A failure does not delay the deletion of the namespace, which deletes the binding too.
	e.UnbindErr = r.unbind(ctx, env)
	if ours && ns.DeletionTimestamp == nil {
		e.DeleteErr = apply.Delete(ctx, r.Client, ns)
	}
	if apierrors.IsConflict(e.UnbindErr) || apierrors.IsConflict(e.DeleteErr) {
		return false, never, errors.Join(e.UnbindErr, e.DeleteErr) // another client wrote first: the next reconciliation observes it
	}

	computeDeleting(env, e, now)
	if err := r.kind.PatchStatus(ctx, before, env, now); err != nil {
		// A status that is refused does not keep an environment whose namespace is gone.
		if ours || outcome.Classify(err) != outcome.Rejected {
			return false, never, reconcile.Join(e.DeleteErr, err)
		}
	}
	r.reportDeletion(before, env, e)
	if ours {
		return false, never, e.DeleteErr // the namespace's events trigger the next reconciliation
	}
	if e.NotOwned && e.UnbindErr != nil {
		return false, never, e.UnbindErr // the namespace stays, and the binding with it
	}
	return true, never, nil
}

// unconfirmed reports whether the deletion may be a side effect of removing another operator: helm uninstall deletes the CRD and all
// environments with it, and they wait for an operator to delete their namespaces. An environment whose deletion this process
// saw was not deleted by that. After a restart nothing was seen, so the check is made again for each environment that is being
// deleted.
func (r *Reconciler) unconfirmed(ctx context.Context, env *quixv1.Environment) (bool, error) {
	if uid, seen := r.live.Load(client.ObjectKeyFromObject(env)); seen && uid == env.UID || env.Annotations[quixv1.AnnotationConfirmDeletion] == "true" {
		return false, nil
	}
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := r.Writer.Live.Get(ctx, client.ObjectKey{Name: crdName}, crd)
	return err == nil && crd.DeletionTimestamp != nil, apply.IgnoreAbsent(err)
}

// computeUnconfirmed writes the status of an environment whose deletion needs a confirmation.
func computeUnconfirmed(env *quixv1.Environment, now time.Time) {
	message := fmt.Sprintf("nothing was deleted: the CRD %s is being deleted, and this Environment was being deleted before this operator came, perhaps by helm uninstall of another one. "+
		"To keep the namespace %s, follow \"After helm uninstall\" in docs/quix/environment.md. To delete it with all in it: kubectl annotate environment %s %s=true",
		crdName, namespaceName(env), env.Name, quixv1.AnnotationConfirmDeletion)
	env.Status.ObservedGeneration, env.Status.Phase, env.Status.Message = env.Generation, quixv1.PhaseDeleting, message
	set := conditions.NewSetter(env, &env.Status.Conditions, now)
	set(quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonDeletionBlocked, message)
	ready := reconcile.Ready{Status: metav1.ConditionFalse, Reason: quixv1.ReasonDeletionBlocked, Message: message, Stalled: true}
	ready.SetOn(&env.Status.Conditions, env.Generation, now)
}

// computeDeleting writes the status of an environment that is being deleted.
func computeDeleting(env *quixv1.Environment, e Deletion, now time.Time) {
	s := &env.Status
	s.ObservedGeneration = env.Generation
	s.Phase, s.Message = quixv1.PhaseDeleting, "deleting"
	binding := quixv1.ResourceStatus{Phase: quixv1.ResourceDeleting, Message: "deleted before the namespace", ResourceName: roleBindingName(env)}
	if e.UnbindErr != nil {
		binding.Phase, binding.Message = quixv1.ResourceFailed, e.UnbindErr.Error()
	}
	ns := quixv1.ResourceStatus{Phase: quixv1.ResourceDeleting, Message: "gone", ResourceName: namespaceName(env)}
	reason := quixv1.ReasonTerminating
	stalled := false
	switch {
	case e.Namespace == nil:
	case e.NotOwned:
		ns.Phase = quixv1.ResourceFailed
		reason, ns.Message = notOwnedReason(e.Namespace), fmt.Sprintf("namespace %s does not belong to this Environment and is not deleted", e.Namespace.Name)
		if e.Collected {
			ns.Message = fmt.Sprintf("namespace %s does not belong to this Environment, but its owner reference names it: the garbage collector deletes the namespace. "+
				"To keep it, remove metadata.ownerReferences of the namespace", e.Namespace.Name)
		}
	case e.DeleteErr != nil:
		ns.Phase = quixv1.ResourceFailed
		reason, ns.Message = quixv1.ReasonDeletionBlocked, e.DeleteErr.Error()
		stalled = outcome.Classify(e.DeleteErr) == outcome.Rejected
	case finalizer.HeldBack(e.Namespace) != "":
		reason, ns.Message = quixv1.ReasonDeletionBlocked, fmt.Sprintf("namespace %s cannot be deleted: %s", e.Namespace.Name, finalizer.HeldBack(e.Namespace))
		stalled = true
	default:
		ns.Message = fmt.Sprintf("namespace %s is being deleted", e.Namespace.Name)
	}
	if reason == quixv1.ReasonDeletionBlocked {
		s.Message = ns.Message
	}
	nsReason, bindingReason := reason, quixv1.ReasonTerminating
	if e.NotOwned && e.UnbindErr != nil {
		// The namespace stays, and so would the platform's rights in it.
		stalled = stalled || outcome.Classify(e.UnbindErr) == outcome.Rejected
		reason, bindingReason = quixv1.ReasonRoleBindingDeletionFailed, quixv1.ReasonRoleBindingDeletionFailed
		s.Message = fmt.Sprintf("namespace %s does not belong to this Environment and stays, but the platform has rights in it, and the operator cannot delete them: %s. "+
			"Delete them, and the Environment is gone: kubectl -n %s delete rolebinding %s", namespaceName(env), e.UnbindErr, namespaceName(env), roleBindingName(env))
		binding.Message = s.Message
	}
	s.NamespaceStatus, s.RoleBindingStatus = &ns, &binding
	set := conditions.NewSetter(env, &s.Conditions, now)
	set(quixv1.ConditionNamespaceReady, metav1.ConditionFalse, nsReason, ns.Message)
	set(quixv1.ConditionRoleBindingReady, metav1.ConditionFalse, bindingReason, binding.Message)
	ready := reconcile.NotReady(quixv1.ReasonTerminating, "The Environment is being deleted")
	if stalled {
		ready = reconcile.Ready{Status: metav1.ConditionFalse, Reason: reason, Message: s.Message, Stalled: true}
	}
	ready.SetOn(&s.Conditions, env.Generation, now)
}

// notOwnedReason distinguishes a namespace that this operator does not manage from one of another Environment.
func notOwnedReason(ns *corev1.Namespace) string {
	if ns.Labels[quixv1.LabelManagedBy] != quixv1.ManagedBy {
		return quixv1.ReasonNamespaceNotManaged
	}
	return quixv1.ReasonNamespaceEnvironmentIDMismatch
}

// unbind revokes the platform's rights. The cache leaves out a binding that has lost its label, so the API server is
// asked too, and later reads do not wait for a deletion that the cache may never show.
func (r *Reconciler) unbind(ctx context.Context, env *quixv1.Environment) error {
	key := roleBindingKey(env)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	exists, err := apply.Find(ctx, r.Writer, binding)
	if err != nil || !exists || !roleBindingOwner(env).Owns(binding) {
		return err
	}
	return apply.Delete(ctx, r.Client, binding, client.DisableReadYourWritesConsistency)
}
