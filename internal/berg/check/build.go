package check

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// build creates what the check needs next: the instance, and when it is Running the solver. It takes one step at a time. Each
// object is created once and never repaired: a check that finds one missing is broken off.
func (r *Reconciler) build(ctx context.Context, o *Observed) error {
	switch {
	case o.Instance == nil:
		return r.create(ctx, instance(o.Check, newFlag(o.Challenge)))
	case o.Instance.Status.ReadyAt == nil || o.Job != nil:
		return nil // its event comes
	}
	in := Inputs{Check: o.Check, Challenge: o.Challenge, Instance: o.Instance, Way: wayTo(o.Instance, o.Challenge), Config: r.Config}
	in.Config.Challenge.NetworkPolicy = r.Policies(ctx)
	if err := r.applyNamespace(ctx, o); err != nil {
		return err
	}
	// Nothing runs before what confines it is there.
	for _, p := range policies(in) {
		if err := r.confine(ctx, o.Check, p); err != nil {
			return err
		}
	}
	if err := r.copyPullSecret(ctx, o.Check); err != nil {
		return err
	}
	return r.create(ctx, job(in))
}

// applyNamespace makes sure that the status has the digest of the namespace token before the namespace is created.
func (r *Reconciler) applyNamespace(ctx context.Context, o *Observed) error {
	owner := func() ownership.Owner { return r.tokens.Complete(namespaceOwner(o.Check)) }
	if _, err := apply.PrepareNamespace(ctx, r.Writer, owner(), o.Namespace, namespaceName(o.Check), func() error {
		before := o.Check.DeepCopy()
		o.Check.Status.NamespaceUID, o.Check.Status.NamespaceTokenHash = "", r.tokens.Draw()
		// This is a second write of the status in one reconciliation, which happens only after a restart or a deletion by others.
		return r.kind.PatchStatus(ctx, before, o.Check, r.Clock.Now())
	}); err != nil {
		return err
	}
	ns, err := apply.Apply(ctx, r.once(), owner(), checkNamespace(o.Check))
	if err == nil {
		o.Namespace = ns
	}
	return err
}

func (r *Reconciler) confine(ctx context.Context, c *bergv1.ChallengeCheck, policy client.Object) (err error) {
	switch p := policy.(type) {
	case *networkingv1.NetworkPolicy:
		_, err = apply.Apply(ctx, r.once(), ownerFor(c), p)
	case *ciliumv2.CiliumNetworkPolicy:
		_, err = apply.Apply(ctx, r.once(), ownerFor(c), p)
	}
	return err
}

// once is a Writer without a drift backoff. Each check creates objects that were deleted after the previous check, under the
// same names and for the same ChallengeCheck. That would count as repairs of an object that another client keeps deleting.
func (r *Reconciler) once() apply.Writer {
	w := r.Writer
	w.DriftBackoff = nil
	return w
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

// copyPullSecret copies the operator's pull secret. A missing one is no reason to stop: the
// image may be public, and instances report it.
func (r *Reconciler) copyPullSecret(ctx context.Context, c *bergv1.ChallengeCheck) error {
	name := r.Config.Challenge.PullSecretName
	if name == "" {
		return nil
	}
	source := &corev1.Secret{}
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, source); err != nil {
		if apply.Absent(err) {
			return nil
		}
		return fmt.Errorf("read the pull secret: %w", err)
	}
	// The operator keeps no cache of Secrets that could wait for this write.
	err := r.Client.Create(ctx, pullSecret(c, source), client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("copy the pull secret: %w", err)
	}
	return nil
}
