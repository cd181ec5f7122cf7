package apply

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// PrepareNamespace makes sure that a namespace can be created: that the owner's Token has a secret. If it has none, because the
// namespace was deleted or the process that drew the secret has ended, the API server must confirm that no namespace exists: the
// former process may have created one that the cache does not show yet. Then reread persists the digest of another secret, and
// that no UID is known. cached is the namespace in the cache, nil if there is none; it is returned unchanged.
func PrepareNamespace(ctx context.Context, w Writer, owner ownership.Owner, cached *corev1.Namespace, name string, reread func() error) (*corev1.Namespace, error) {
	// With the secret in memory a creation that has already succeeded is harmless: the API server answers that the name exists,
	// and the namespace carries the token.
	if cached != nil || owner.Token != nil && owner.MayCreate() {
		return cached, nil
	}
	live, err := Found(ctx, w.Live, client.ObjectKey{Name: name}, &corev1.Namespace{})
	if err != nil || live != nil {
		return live, err
	}
	return nil, reread()
}
