package challengeinstance

import (
	"context"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// namespaceOwner is manifests.NamespaceOwner with the secret that lets this process create the namespace. Without the
// secret the owner may only recognise a namespace that exists.
func (r *Reconciler) namespaceOwner(instance *bergv1.ChallengeInstance) ownership.Owner {
	return r.tokens.Complete(manifests.NamespaceOwner(instance))
}

// prepareNamespace makes sure that the namespace can be created. The admitter draws the secret when the instance starts.
// Another secret is drawn when the namespace was deleted, and when the process that drew the first one has ended before it
// created the namespace. Then the status must have the new digest first, so this reconciliation writes no object.
func (r *Reconciler) prepareNamespace(ctx context.Context, out *status.Outcome) (err error) {
	out.Namespace, err = apply.PrepareNamespace(ctx, r.Writer, r.namespaceOwner(out.Instance), out.Namespace, manifests.NamespaceFor(out.Instance), func() error {
		out.NamespaceTokenHash = r.tokens.Draw()
		return nil
	})
	return err
}
