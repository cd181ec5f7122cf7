package retention

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The right to read the login is separate: an administrator applies config/kibaship/retention.
//
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=cleanup,verbs=get,namespace=kibaship-images

// interval is after how long the images of an Application are looked through again: by then others are old enough.
const interval = 24 * time.Hour

// A failure is reported and repeated with a delay that grows. A registry that refuses is asked once per interval.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (requeueAfter time.Duration, err error) {
	a := &kibashipv1.Application{}
	if err := outcome.WrapNotFound(r.Client.Get(ctx, req.NamespacedName, a)); err != nil {
		return 0, err
	}
	r.backoff.ResetIfReplaced(req, a.UID)
	if !r.Config.Retention.On || r.Config.Builds.Registry == "" || a.DeletionTimestamp != nil || a.Spec.Type != kibashipv1.TypeGitRepository {
		return 0, r.report(ctx, a, nil)
	}
	name, runs, ok, err := r.repository(ctx, a)
	if err != nil || !ok {
		return 0, err
	}
	done, failed := r.try(ctx, a, name, runs)
	imagesDeleted.Add(float64(done.deleted))
	switch {
	case done.deferred:
		return interval, nil // the end of the build enqueues the Application
	case registry.RefusesDeletion(failed):
		return interval, r.report(ctx, a, refused(failed))
	case failed != nil:
		return interval, reconcile.Join(failed, r.report(ctx, a, newCondition(metav1.ConditionFalse, kibashipv1.ReasonCleanUpFailed, "Images cannot be cleaned up, which is tried again and again: "+failed.Error())))
	case done.unfinished:
		return time.Second, nil
	}
	return interval, r.report(ctx, a, newCondition(metav1.ConditionTrue, kibashipv1.ReasonImagesCleanedUp, fmt.Sprintf("%s has %d images", name, done.images-done.deleted)))
}

func (r *Reconciler) try(ctx context.Context, a *kibashipv1.Application, name, runs string) (done cleaned, err error) {
	repository, err := r.open(ctx, name)
	if err != nil {
		return done, err
	}
	return r.clean(ctx, a, repository, runs)
}

func newCondition(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: kibashipv1.ConditionImagesCleanedUp, Status: status, Reason: reason, Message: message}
}

func refused(err error) *metav1.Condition {
	return newCondition(metav1.ConditionFalse, kibashipv1.ReasonDeletionRefused, fmt.Sprintf(
		"The registry does not delete images for the login of Secret %s in namespace %s: allow it there, or set IMAGE_CLEANUP=false and use the registry's own rules. It is tried again once a day. %v", loginName, loginNamespace, err))
}

// report writes the condition of an Application, or removes it for nil. The rest of the status belongs to the controller of Applications,
// which may write at the same time: a conflict must not repeat the clean-up.
func (r *Reconciler) report(ctx context.Context, a *kibashipv1.Application, condition *metav1.Condition) error {
	if !r.set(a.DeepCopy(), condition) {
		return nil
	}
	return outcome.WrapNotFound(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current := &kibashipv1.Application{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(a), current); err != nil {
			return err
		}
		before := current.DeepCopy()
		// An Application of the same name that is newer gets no condition of the former one.
		if current.UID != a.UID || !r.set(current, condition) {
			return nil
		}
		return r.Client.Status().Patch(ctx, current, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}))
}

// set sets the condition on an Application, and reports whether that changes its status.
func (r *Reconciler) set(a *kibashipv1.Application, condition *metav1.Condition) (changed bool) {
	before := a.DeepCopy()
	if condition == nil {
		meta.RemoveStatusCondition(&a.Status.Conditions, kibashipv1.ConditionImagesCleanedUp)
	} else {
		conditions.Upsert(&a.Status.Conditions, a.Generation, r.Clock.Now(), *condition)
	}
	return !equality.Semantic.DeepEqual(before.Status, a.Status)
}
