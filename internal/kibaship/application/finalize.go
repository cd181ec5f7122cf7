package application

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// finalize deletes the Deployments of an Application. It does not wait for them: they have finalizers of their own.
func (r *Reconciler) finalize(ctx context.Context, a *kibashipv1.Application, now time.Time) (done bool, never time.Duration, err error) {
	failed := r.deleteDeployments(ctx, a)
	if failed == nil {
		return true, never, nil
	}
	if apierrors.IsConflict(failed) {
		return false, never, failed // another client wrote first: the next reconciliation observes it
	}
	before := a.DeepCopy()
	computeDeleting(a, failed, now)
	return false, never, reconcile.Join(failed, r.kind.PatchStatus(ctx, before, a, now))
}

// deleteDeployments deletes the Deployments that refer to the Application, and Deployments that only carry its label.
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
