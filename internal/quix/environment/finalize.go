package environment

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// finalize carries out the deletion of an environment, from whatever state it
// is in: first the platform's rights, then the namespace. It is done when the
// namespace is gone, or turns out not to be the environment's.
func (r *Reconciler) finalize(ctx context.Context, env *quixv1.Environment, now time.Time) error {
	if !controllerutil.ContainsFinalizer(env, quixv1.Finalizer) || r.finalizers.Done(env) {
		return nil // somebody else holds it back, or the cache is late
	}
	if namespaceName(env) == "" { // deleted before anything was made
		return r.release(ctx, env)
	}
	before := env.DeepCopy()
	e := Deletion{}
	// What keeps the binding does not keep the namespace, whose deletion deletes
	// the binding too.
	e.UnbindErr = r.unbind(ctx, env)

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(env)}}
	exists, err := apply.Find(ctx, r.Writer, ns)
	if err != nil {
		return errors.Join(err, e.UnbindErr)
	}
	if exists {
		e.Namespace = ns
		e.Foreign = !namespaceOwner(env).Owns(ns)
	}
	if exists && !e.Foreign && ns.DeletionTimestamp == nil {
		e.DeleteErr = apply.Delete(ctx, r.Client, ns)
	}
	if apierrors.IsConflict(e.UnbindErr) || apierrors.IsConflict(e.DeleteErr) {
		return errors.Join(e.UnbindErr, e.DeleteErr) // somebody was faster: another look tells
	}

	computeDeleting(env, e, now)
	if err := r.patchStatus(ctx, before, env, now); err != nil {
		// A status that is refused holds no environment back whose namespace is gone.
		if exists && !e.Foreign || outcome.CauseOf(err) != outcome.Rejected {
			return reconcile.Join(e.DeleteErr, err)
		}
	}
	r.reportDeletion(before, env, e)
	switch {
	case exists && !e.Foreign:
		return e.DeleteErr // the namespace's events wake us
	case e.Foreign && e.UnbindErr != nil:
		return e.UnbindErr // the namespace stays, and the binding with it
	default:
		return r.release(ctx, env)
	}
}

// release takes the finalizer off. The status is not written again: an event tells when the
// API server refuses.
func (r *Reconciler) release(ctx context.Context, env *quixv1.Environment) error {
	err := r.finalizers.Remove(ctx, r.Client, env, quixv1.Finalizer)
	if outcome.CauseOf(err) == outcome.Rejected {
		reconcile.Warning(r.Events, env, quixv1.ReasonRefused, actionDelete,
			"All that belonged to this Environment is gone; the API server refuses to take its finalizer off: "+err.Error())
	}
	return err
}

// Deletion is what one pass saw and did of an environment that is being deleted.
type Deletion struct {
	// Namespace of the environment's name; nil when it is gone.
	Namespace *corev1.Namespace
	// Foreign: it is not this environment's.
	Foreign bool
	// UnbindErr and DeleteErr are why binding and namespace were not deleted.
	UnbindErr, DeleteErr error
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
	switch {
	case e.Namespace == nil:
	case e.Foreign:
		ns.Phase = quixv1.ResourceFailed
		reason, ns.Message = foreignReason(e.Namespace), fmt.Sprintf("namespace %s does not belong to this Environment and stays", e.Namespace.Name)
	case e.DeleteErr != nil:
		ns.Phase = quixv1.ResourceFailed
		reason, ns.Message = quixv1.ReasonDeletionBlocked, e.DeleteErr.Error()
	case finalizer.HeldBack(e.Namespace) != "":
		reason, ns.Message = quixv1.ReasonDeletionBlocked, fmt.Sprintf("namespace %s cannot be deleted: %s", e.Namespace.Name, finalizer.HeldBack(e.Namespace))
	default:
		ns.Message = fmt.Sprintf("namespace %s is being deleted", e.Namespace.Name)
	}
	if reason == quixv1.ReasonDeletionBlocked {
		s.Message = ns.Message
	}
	s.NamespaceStatus, s.RoleBindingStatus = &ns, &binding
	setCondition(env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, reason, ns.Message, now)
	setCondition(env, quixv1.ConditionRoleBindingReady, metav1.ConditionFalse, quixv1.ReasonTerminating, binding.Message, now)
	setCondition(env, quixv1.ConditionReady, metav1.ConditionFalse, quixv1.ReasonTerminating, "The Environment is being deleted", now)
}

// foreignReason tells a namespace that this operator never managed from one of
// another Environment.
func foreignReason(ns *corev1.Namespace) string {
	if ns.Labels[quixv1.LabelManagedBy] != quixv1.ManagedBy {
		return quixv1.ReasonNamespaceNotManaged
	}
	return quixv1.ReasonNamespaceEnvironmentIDMismatch
}
