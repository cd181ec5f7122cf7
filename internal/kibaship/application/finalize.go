package application

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// finalize deletes the Deployments of an Application, and lets it go. Deployments have
// finalizers of their own: nobody waits for them.
func (r *Reconciler) finalize(ctx context.Context, a *kibashipv1.Application, now time.Time) error {
	if !controllerutil.ContainsFinalizer(a, kibashipv1.ApplicationFinalizer) || r.finalizers.Done(a) {
		return nil // somebody else holds it back, or the cache is late
	}
	failed := r.deleteDeployments(ctx, a)
	if apierrors.IsConflict(failed) {
		return failed // somebody was faster: another look tells
	}
	if failed != nil {
		before := a.DeepCopy()
		computeDeleting(a, failed, now)
		return reconcile.Join(failed, r.patchStatus(ctx, before, a))
	}
	err := r.finalizers.Remove(ctx, r.Client, a, kibashipv1.ApplicationFinalizer)
	if outcome.CauseOf(err) == outcome.Rejected {
		reconcile.Warning(r.Events, a, kibashipv1.ReasonRefused, actionDelete,
			"The Deployments of this Application are deleted; the API server refuses to take its finalizer off: "+err.Error())
	}
	return err
}

// deleteDeployments deletes what refers to the Application, and what is labelled as its own.
func (r *Reconciler) deleteDeployments(ctx context.Context, a *kibashipv1.Application) error {
	var errs []error
	seen := map[string]bool{}
	for _, selected := range []client.ListOption{
		client.MatchingFields{IndexApplication: a.Name},
		client.MatchingLabels{kibashipv1.LabelApplication: naming.LabelValue(a.Name)},
	} {
		var deployments kibashipv1.DeploymentList
		if err := r.Client.List(ctx, &deployments, client.InNamespace(a.Namespace), selected); err != nil {
			return err
		}
		for i := range deployments.Items {
			d := &deployments.Items[i]
			if seen[d.Name] || d.DeletionTimestamp != nil {
				continue
			}
			seen[d.Name] = true
			errs = append(errs, apply.Delete(ctx, r.Client, d))
		}
	}
	return errors.Join(errs...)
}
