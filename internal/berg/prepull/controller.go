package prepull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// These rights are in a role of their own: berg-prepull. What pulling does in addition
// (namespaces, network policies, Deployments, the copy of the pull secret) instances need too.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=list;watch

// reconcile brings the images of all Challenges a step further. It returns after how long time
// alone will change something, zero for never. The order matters: pulls that have ended free their slots before new ones are
// chosen, and the statuses come last, with the results of this round.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (requeueAfter time.Duration, err error) {
	r.backoff.ResetIfReplaced(req, "")
	now := r.Clock.Now()
	o, err := r.observe(ctx)
	if err != nil {
		return 0, err
	}
	all := computeDesired(o, r.Config, now)
	var errs []error
	errs = append(errs, r.finishPulls(ctx, &o, all, now))
	r.store.update(o, all, r.Config.Challenge.ImagePullPolicy == corev1.PullAlways)
	starts, untilRetry := next(all, o.Pulls, r.store, r.Config.Prepull.Concurrency, now)
	for _, s := range starts {
		errs = append(errs, r.begin(ctx, &o, s, now))
	}
	errs = append(errs, r.deleteUnused(ctx, o, all))

	requeueAfter = untilRetry
	for i := range all {
		left, err := r.writeStatus(ctx, &all[i], o, now)
		errs = append(errs, err)
		requeueAfter = status.Sooner(status.Sooner(requeueAfter, left), all[i].Window.untilChange(now))
	}
	for _, p := range o.Pulls {
		requeueAfter = status.Sooner(requeueAfter, max(time.Second, maxPull-now.Sub(p.Deployment.CreationTimestamp.Time)))
	}
	failing.Store(int64(len(r.store.failed)))
	return requeueAfter, errors.Join(errs...)
}

// finishPulls ends the pulls that are done, and pulls that no Challenge needs any more. Pulls in progress stay in o.
func (r *Reconciler) finishPulls(ctx context.Context, o *Observed, all []Desired, now time.Time) error {
	desiredByPod := map[types.UID]*Desired{}
	for i := range all {
		desiredByPod[all[i].Challenge.UID] = &all[i]
	}
	var active []Pull
	var errs []error
	for _, p := range o.Pulls {
		if w := desiredByPod[p.Challenge]; w != nil && isWanted(w, p.Target) {
			v := p.check(now)
			switch {
			case v.Pulled:
				if r.store.pulled(p.Target) {
					pulls.WithLabelValues(bergv1.ImagesPulled).Inc()
				}
			case v.Failed:
				if r.store.fail(attempt{p.Challenge, p.Target}, w.Challenge.Generation, p.Deployment.UID, v.Message, now) {
					pulls.WithLabelValues(bergv1.ImagesPullFailed).Inc()
				}
				// The pull secret may be another one by now.
				delete(r.store.prepared, o.Namespaces[p.Challenge].UID)
			default:
				active = append(active, p)
				continue
			}
		}
		if err := apply.Delete(ctx, r.Client, p.Deployment); err != nil {
			errs = append(errs, fmt.Errorf("end the pull of %s: %w", p.Target.Image, err))
			active = append(active, p) // it keeps its slot until it is gone
		}
	}
	o.Pulls = active
	return errors.Join(errs...)
}

// isWanted reports whether a pull in progress may continue. Once players see the Challenge, a
// started pull is of use to them.
func isWanted(w *Desired, t Target) bool {
	return w.Window.Stage == over || w.Window.Stage == open && slices.Contains(w.Targets, t)
}

// begin begins a pull, in a namespace that confines it.
func (r *Reconciler) begin(ctx context.Context, o *Observed, s start, now time.Time) error {
	c := s.Desired.Challenge
	ns := o.Namespaces[c.UID]
	if ns == nil {
		ns = namespace(c)
		if err := r.create(ctx, ns); err != nil {
			return r.refuse(s, fmt.Errorf("create the namespace in which images are pulled: %w", err), now)
		}
		// The UID comes from the answer of the API server. A creation whose answer was lost is not in the store, and the namespace
		// is deleted and created again.
		r.store.created[ns.UID] = true
		o.Namespaces[c.UID] = ns
	}
	secret, err := r.prepare(ctx, c.UID, ns)
	if err != nil {
		return r.refuse(s, err, now)
	}
	d := deployment(Inputs{
		Challenge: c.UID, Target: s.Target, Node: o.Nodes[s.Target.Node].Name,
		PullSecret: secret, Config: o.support().Apply(r.Config.Challenge), Now: now,
	})
	if err := r.create(ctx, d); err != nil {
		return r.refuse(s, fmt.Errorf("create the pull of %s: %w", s.Target.Image, err), now)
	}
	o.Pulls = append(o.Pulls, Pull{Challenge: c.UID, Target: s.Target, Deployment: d})
	return nil
}

// refuse records a failed pull for an error that the API server will return again. Every other
// error is returned, to be tried soon.
func (r *Reconciler) refuse(s start, err error, now time.Time) error {
	switch outcome.Classify(err) {
	case outcome.Rejected, outcome.NotOwned:
		r.store.fail(attempt{s.Desired.Challenge.UID, s.Target}, s.Desired.Challenge.Generation, "", err.Error(), now)
		pulls.WithLabelValues(bergv1.ImagesPullFailed).Inc()
		return nil
	default:
		return err
	}
}

// create makes an object that is never changed. If there is one of its name the cache will show
// it, and the next reconciliation whose it is.
func (r *Reconciler) create(ctx context.Context, o client.Object) error {
	err := r.Client.Create(ctx, o, client.FieldOwner(r.Writer.Manager))
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: %w", outcome.ErrConflict, err)
	}
	return err
}

// prepare confines a namespace and copies the pull secret into it, once. It returns the name of
// the copy. A missing source is no reason to stop: the image may be public, and instances report it.
func (r *Reconciler) prepare(ctx context.Context, challenge types.UID, ns *corev1.Namespace) (secret string, err error) {
	if name, ok := r.store.prepared[ns.UID]; ok {
		return name, nil
	}
	// None of both may be in a cache that could wait for this write.
	err = r.Client.Create(ctx, networkPolicy(challenge), client.FieldOwner(r.Writer.Manager), client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("close the namespace in which images are pulled: %w", err)
	}
	if name := r.Config.Challenge.PullSecretName; name != "" {
		source := &corev1.Secret{}
		switch err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, source); {
		case apply.Absent(err):
		case err != nil:
			return "", fmt.Errorf("read the pull secret: %w", err)
		default:
			copied := pullSecret(challenge, ns.UID, source)
			err := r.Client.Create(ctx, copied, client.FieldOwner(r.Writer.Manager), client.DisableReadYourWritesConsistency)
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return "", fmt.Errorf("copy the pull secret: %w", err)
			}
			secret = copied.Name
		}
	}
	r.store.prepared[ns.UID] = secret
	return secret, nil
}

// deleteUnused deletes the namespaces in which no image is pulled any more, and namespaces that this process has not
// created.
func (r *Reconciler) deleteUnused(ctx context.Context, o Observed, all []Desired) error {
	needed := map[types.UID]bool{}
	for i := range all {
		needed[all[i].Challenge.UID] = needsNamespace(&all[i], r.store)
	}
	for _, p := range o.Pulls {
		needed[p.Challenge] = true
	}
	unused := slices.Clone(o.Left)
	for challenge, ns := range o.Namespaces {
		if !needed[challenge] {
			unused = append(unused, ns)
		}
	}
	var errs []error
	for _, ns := range unused {
		if ns.DeletionTimestamp != nil {
			continue
		}
		if err := apply.Delete(ctx, r.Client, ns); err != nil {
			errs = append(errs, fmt.Errorf("delete the namespace in which images were pulled: %w", err))
		}
	}
	return errors.Join(errs...)
}

// writeStatus writes the condition of a Challenge if it has changed. It returns how long the change has to wait.
func (r *Reconciler) writeStatus(ctx context.Context, w *Desired, o Observed, now time.Time) (left time.Duration, err error) {
	c := w.Challenge
	if apimeta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady) == nil && (w.Window.Stage == never || w.Window.Stage == over) {
		return 0, nil // most Challenges, most of the time
	}
	// A refused status would otherwise be sent again with each event of each pull.
	if refused, ok := r.store.refused[c.UID]; ok && refused.Generation == c.Generation {
		if left := refused.again().Sub(now); left > 0 {
			return left, nil
		}
	}
	after := c.DeepCopy()
	change := computeStatus(after, w, o, r.store, now)
	if change == unchanged {
		return 0, nil
	}
	if texts, ok := r.store.reportedAt[c.UID]; ok && change == progress {
		if left := texts.Add(reportInterval).Sub(now); left > 0 {
			return left, nil
		}
	}
	switch err := r.patchStatus(ctx, c, after); {
	case errors.Is(err, outcome.ErrGone): // its event comes
		return 0, nil
	case outcome.Classify(err) == outcome.Rejected: // an event reports it
		r.store.refuse(c.UID, c.Generation, now)
		return r.store.refused[c.UID].again().Sub(now), nil
	case err != nil:
		return 0, err
	}
	delete(r.store.refused, c.UID)
	r.store.reportedAt[c.UID] = now
	if change == changed {
		r.report(after)
	}
	return 0, nil
}
