package check

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/berg/stop"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// finalize deletes what belongs to a ChallengeCheck that is being deleted. It has the finalizer only if a check was begun.
func (r *Reconciler) finalize(ctx context.Context, c *bergv1.ChallengeCheck, now time.Time) (done bool, requeueAfter time.Duration, err error) {
	r.builds.forget(c)
	o := Observed{Check: c}
	if err := r.observeRun(ctx, &o); err != nil {
		return false, 0, err
	}
	return r.end(ctx, o, now)
}

// end asks for the deletion of what belongs to a check, and reports whether all of it is gone. If not, it
// returns when pods that do not end are observed again, zero for never.
func (r *Reconciler) end(ctx context.Context, o Observed, now time.Time) (gone bool, requeueAfter time.Duration, err error) {
	var errs []error
	if i := o.Instance; i != nil && i.DeletionTimestamp == nil {
		errs = append(errs, apply.Delete(ctx, r.Client, i))
	}
	if ns := o.Namespace; ns != nil && ns.DeletionTimestamp == nil {
		errs = append(errs, apply.Delete(ctx, r.Client, ns))
	}
	if err := errors.Join(errs...); err != nil {
		return false, 0, err
	}
	if o.Namespace != nil {
		pods, err := stop.Pods(ctx, r.Client, o.Namespace.Name, r.Policies(ctx).OutlivesNamespace(), now)
		return false, pods.Again, err // the events of what goes lead to the next step
	}
	if o.Instance != nil {
		return false, 0, nil
	}
	// The cache may not show yet an object that another process wrote before it was killed. After this answer the status forgets
	// the run, and no process would look for the objects again. So the API server is asked once.
	for left, owner := range map[client.Object]ownership.Owner{
		&bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: o.Check.Namespace, Name: instanceName(o.Check)}}: ownerFor(o.Check),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(o.Check)}}:                                      namespaceOwner(o.Check),
	} {
		exists, err := apply.Find(ctx, r.Writer, left)
		if err != nil {
			return false, 0, err
		}
		if exists && owner.Owns(left) {
			return false, 0, outcome.ErrConflict
		}
	}
	return true, 0, nil
}

// release removes the finalizer from a live ChallengeCheck without a current check: it can then be
// deleted without an operator that runs checks.
func (r *Reconciler) release(ctx context.Context, c *bergv1.ChallengeCheck) error {
	if !controllerutil.ContainsFinalizer(c, bergv1.CheckFinalizer) {
		return nil
	}
	if err := outcome.WrapNotFound(finalizer.Complete(ctx, r.Client, r.Live, c)); err != nil {
		return err
	}
	before := c.DeepCopy()
	controllerutil.RemoveFinalizer(c, bergv1.CheckFinalizer)
	return outcome.WrapNotFound(r.Client.Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// redact returns an error of the same kind whose text names no flag of the check: an admission webhook may repeat the whole
// object that it refuses. Both flags are read from the cache for each error: the flag of the instance is nowhere else, because it
// must not be in a status.
func (r *Reconciler) redact(ctx context.Context, c *bergv1.ChallengeCheck, err error) error {
	var flags []string
	if challenge, missing := r.challenge(ctx, c); missing == nil && challenge != nil {
		flags = append(flags, challenge.Spec.Flag)
	}
	played := &bergv1.ChallengeInstance{}
	if missing := r.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: instanceName(c)}, played); missing == nil {
		flags = append(flags, played.Spec.Flag)
	}
	return redactedError{err, flags}
}

type redactedError struct {
	error
	flags []string
}

func (e redactedError) Error() string {
	text := e.error.Error()
	for _, flag := range e.flags {
		text = redact.Text(text, flag)
	}
	return text
}

func (e redactedError) Unwrap() error { return e.error }
