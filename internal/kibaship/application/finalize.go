package application

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/commitstatus"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// finalize deletes the Deployments of an Application. It waits only for states that are sent with its token: they have finalizers of their own.
func (r *Reconciler) finalize(ctx context.Context, a *kibashipv1.Application, now time.Time) (done bool, after time.Duration, err error) {
	after, failed := r.deleteDeployments(ctx, a, now)
	switch {
	case failed == nil && after == 0:
		return true, 0, nil
	case apierrors.IsConflict(failed):
		return false, 0, failed // another client wrote first: the next reconciliation observes it
	}
	before := a.DeepCopy()
	computeDeleting(a, failed, now)
	return false, after, reconcile.Join(failed, r.kind.PatchStatus(ctx, before, a, now))
}

// deleteDeployments deletes the Deployments that refer to the Application, and Deployments that only carry its label. unsent is for how much
// longer one of them has a state to send. The same lists give those that are being deleted already: one of them may still have a
// state to send.
func (r *Reconciler) deleteDeployments(ctx context.Context, a *kibashipv1.Application, now time.Time) (unsent time.Duration, err error) {
	var errs []error
	seen := map[string]bool{}
	for _, selected := range []client.ListOption{
		client.MatchingFields{IndexApplication: a.Name},
		client.MatchingLabels{kibashipv1.LabelApplication: naming.LabelValue(a.Name)},
	} {
		var deployments kibashipv1.DeploymentList
		if err := r.Client.List(ctx, &deployments, client.InNamespace(a.Namespace), selected); err != nil {
			return 0, err
		}
		for i := range deployments.Items {
			d := &deployments.Items[i]
			if !seen[d.Name] && d.DeletionTimestamp == nil {
				errs = append(errs, apply.Delete(ctx, r.Client, d))
				d.DeletionTimestamp = &metav1.Time{Time: now}
			}
			seen[d.Name] = true
			if r.Config.Pushes.CommitStatus {
				unsent = max(unsent, commitstatus.Unsent(d, a, now))
			}
		}
	}
	return unsent, errors.Join(errs...)
}
