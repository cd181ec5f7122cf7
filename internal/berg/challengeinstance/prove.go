package challengeinstance

import (
	"context"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// namespaceOwner is manifests.NamespaceOwner with the secret that lets this process create the namespace.
func (r *Reconciler) namespaceOwner(instance *bergv1.ChallengeInstance) ownership.Owner {
	return r.tokens.Complete(manifests.NamespaceOwner(instance))
}

// prepareNamespace makes sure that the namespace can be created. The admitter draws the secret when the instance starts.
// Another one is needed when the namespace was deleted, when the process that drew it has ended before it created the
// namespace, and for an instance that an older version has started.
func (r *Reconciler) prepareNamespace(ctx context.Context, o *status.Observed) (err error) {
	o.Namespace, err = apply.PrepareNamespace(ctx, r.Writer, r.namespaceOwner(o.Instance), o.Namespace, manifests.NamespaceName(o.Instance.Spec.OwnerID), func() error {
		before := o.Instance.DeepCopy()
		status.ResetNamespace(o.Instance, r.tokens.Draw())
		return r.patchStatus(ctx, before, o.Instance)
	})
	return err
}
