package apply

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// ScaleToZero stops the pods of an owned Deployment. It reads the Deployment from the API server: the cache may hold only a
// part of it. Another owner's Deployment, and one that is absent or being deleted, is no error. The next Apply starts the
// pods again.
func ScaleToZero(ctx context.Context, w Writer, owner ownership.Owner, key client.ObjectKey) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		d := &appsv1.Deployment{}
		if err := w.Live.Get(ctx, key, d); err != nil {
			return IgnoreAbsent(err)
		}
		if !owner.Owns(d) || d.DeletionTimestamp != nil || ptr.Deref(d.Spec.Replicas, 1) == 0 {
			return nil
		}
		d.Spec.Replicas = ptr.To[int32](0)
		// The plan wants other replicas: without the checksum, the next Apply writes the plan again. Contains alone would not do:
		// the plan may leave the replicas out, and then zero would stay.
		delete(d.Annotations, ChecksumAnnotation(owner.Annotation))
		return IgnoreAbsent(w.Client.Update(ctx, d, client.FieldOwner(w.Manager)))
	})
}
