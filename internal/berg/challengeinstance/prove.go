package challengeinstance

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// namespaceOwner is manifests.NamespaceOwner with the secret that lets this process create the namespace.
func (r *Reconciler) namespaceOwner(instance *bergv1.ChallengeInstance) ownership.Owner {
	owner, s := manifests.NamespaceOwner(instance), &instance.Status
	if owner.Proof != nil {
		owner.Proof = r.proofs.Proof(s.NamespaceUID, s.NamespaceProof)
	}
	return owner
}

// proveNamespace makes sure that the namespace can be created: that this process knows the secret whose digest is in the
// status. The admitter draws it when the instance starts. Another one is needed when the namespace was deleted, when the
// process that drew it has ended before it created the namespace, and for an instance that an older version has started.
// Then the API server must confirm that there is no namespace: it could be one of the former process.
func (r *Reconciler) proveNamespace(ctx context.Context, o *status.Observed) error {
	owner := r.namespaceOwner(o.Instance)
	if o.Namespace != nil || owner.Proof != nil && owner.MayCreate() {
		return nil
	}
	var err error
	key := client.ObjectKey{Name: manifests.NamespaceName(o.Instance.Spec.OwnerID)}
	if o.Namespace, err = apply.Found(ctx, r.Live, key, &corev1.Namespace{}); err != nil || o.Namespace != nil {
		return err
	}
	before := o.Instance.DeepCopy()
	status.ProveAgain(o.Instance, r.proofs.Draw())
	return r.patchStatus(ctx, before, o.Instance)
}
