package challengeinstance

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
)

// retryRefused triggers the controllers of Kubernetes to create rejected pods again, which
// every write of a Deployment does. The annotation is not part of the plan: otherwise each
// attempt would count as drift, and several as a conflict with another writer.
func (r *Reconciler) retryRefused(ctx context.Context, o status.Observed, now time.Time) error {
	var errs []error
	for _, d := range o.Deployments {
		if retry := status.RetryAt(d); retry.IsZero() || now.Before(retry) {
			continue
		}
		// The cached object is trimmed: an update with it would remove the trimmed fields.
		live := &appsv1.Deployment{}
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(d), live)
		if err == nil && live.UID == d.UID && manifests.OwnerFor(o.Instance).Owns(live) {
			metav1.SetMetaDataAnnotation(&live.ObjectMeta, bergv1.AnnotationRetriedAt, now.UTC().Format(time.RFC3339))
			err = r.Client.Update(ctx, live, client.FieldOwner(r.Writer.Manager))
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("retry the pods of %s: %w", d.Name, err))
		}
	}
	return errors.Join(errs...)
}
