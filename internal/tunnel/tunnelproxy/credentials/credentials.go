// Package credentials manages the Secrets with which the operator and the proxies of a pair authenticate each other: an
// authority and its key in the operator's namespace, and for each proxy a certificate in a Secret next to its pod.
// Certificates are renewed in time. It also copies the Secret with which nodes pull the image.
//
// The key of the authority never leaves the operator's namespace. A container that takes over a client proxy gets the client's key, with
// which it can act as that client proxy and as no other role.
//
// No error and no log line quotes the data of a Secret.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
)

// authorityKey is the key of an authority in the Secret that only the operator reads.
const authorityKey = "ca.key"

// authorityLifetime is longer than any pair runs.
const authorityLifetime = 10 * 365 * 24 * time.Hour

// Keys are the operator's identity for calls to a server proxy, and the files of that proxy.
type Keys struct {
	Controller *pki.Identity
	Authority  []byte
	Server     pki.Pair
	// Renew is when the first of the certificates must be replaced.
	Renew time.Time
}

// Store reads and writes the Secrets of pairs. It keeps only Keys in memory, until they must be renewed.
type Store struct {
	Client client.Client
	// Writer reads Secrets live: there is no cache of Secrets.
	Writer apply.Writer
	// Namespace of the operator.
	Namespace string
	// Lifetime of certificates.
	Lifetime time.Duration
	// PullSecret is in Namespace, for nodes that pull the image; "" if they need none.
	PullSecret string

	mu    sync.Mutex
	known map[types.UID]Keys
}

// Known returns the keys of a pair if they are in memory.
func (s *Store) Known(uid types.UID) (k Keys, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, known = s.known[uid]
	return k, known
}

// Identity returns the operator's identity for calls to the server proxy of a pair, if it is in memory.
func (s *Store) Identity(uid types.UID) (id *pki.Identity, known bool) {
	k, known := s.Known(uid)
	return k.Controller, known
}

// Forget drops the keys of a pair from memory.
func (s *Store) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, uid)
}

// Keys creates and renews the Secrets of a pair, and returns its keys. namespace is the namespace of its network.
func (s *Store) Keys(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, namespace string, now time.Time) (Keys, error) {
	if k, known := s.Known(p.UID); known && now.Before(k.Renew) {
		return k, nil
	}
	// Without the lock, because it waits for the API server. Two calls would read the same Secrets: the authority is created once.
	k, err := s.ensure(ctx, p, namespace, now)
	if err != nil {
		return Keys{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[types.UID]Keys{}
	}
	s.known[p.UID] = k
	return k, nil
}

// ensure creates the authority of a pair, once, and the three leaves below it. The authority is never replaced
// while the pair lives; each leaf is renewed in its Secret, which the proxies read again. The first write is the authority. A
// process that is killed after it finds the Secret, and issues the missing certificates below the same authority.
func (s *Store) ensure(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, namespace string, now time.Time) (Keys, error) {
	owner := pairobjects.OwnerFor(p)
	control, err := s.controlSecret(ctx, p, owner, now)
	if err != nil {
		return Keys{}, status.InOwnNamespace(err)
	}
	authority, err := pki.ParseAuthority(pki.Pair{Certificate: control.Data[pki.AuthorityFile], Key: control.Data[authorityKey]})
	if err != nil {
		return Keys{}, fmt.Errorf("secret %s/%s: %w: delete this object and create another one", control.Namespace, control.Name, err)
	}
	k := Keys{Authority: authority.Certificate, Renew: authority.NotAfter()}
	own, err := s.leaf(ctx, owner, control, authority, pki.Controller, now, &k.Renew)
	if err != nil {
		return Keys{}, status.InOwnNamespace(err)
	}
	if k.Controller, err = pki.NewIdentity(authority.Certificate, own); err != nil {
		return Keys{}, err
	}
	if _, err = s.proxyLeaf(ctx, p, namespace, pairobjects.PartClient, authority, pki.ClientProxy, now, &k.Renew); err != nil {
		return Keys{}, err
	}
	k.Server, err = s.proxyLeaf(ctx, p, s.Namespace, pairobjects.PartServer, authority, pki.ServerProxy, now, &k.Renew)
	return k, status.InOwnNamespace(err)
}

// proxyLeaf returns the certificate of a proxy, which is in a Secret next to its pod.
func (s *Store) proxyLeaf(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, namespace, part string, authority *pki.Authority, role pki.Role, now time.Time, renew *time.Time) (pki.Pair, error) {
	return s.leaf(ctx, pairobjects.OwnerFor(p), &corev1.Secret{
		ObjectMeta: objectMeta(p, namespace, part),
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{pki.AuthorityFile: authority.Certificate},
	}, authority, role, now, renew)
}

func objectMeta(p *tunnelv1.ContainerNetworkTunnelProxy, namespace, part string) metav1.ObjectMeta {
	return manifests.NewObjectMeta(p.UID, p.Name, namespace, pairobjects.Name(p.Name, part, p.UID), "")
}

// controlSecret returns the Secret with the authority, which is made once for a pair.
func (s *Store) controlSecret(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, owner ownership.Owner, now time.Time) (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: objectMeta(p, s.Namespace, pairobjects.PartControl)}
	live, err := s.liveSecret(ctx, owner, client.ObjectKeyFromObject(secret))
	if err != nil || live != nil {
		return live, err
	}
	authority, err := pki.NewAuthority("tunnel proxy "+p.Name, now, authorityLifetime)
	if err != nil {
		return nil, err
	}
	pair, err := authority.Issue(pki.Controller, now, s.Lifetime)
	if err != nil {
		return nil, err
	}
	secret.Data = map[string][]byte{
		pki.AuthorityFile: authority.Certificate, authorityKey: authority.Key,
		pki.CertificateFile: pair.Certificate, pki.KeyFile: pair.Key,
	}
	owner.SetOn(secret)
	// If the answer is lost, the next reconciliation finds the Secret.
	err = s.Client.Create(ctx, secret, client.FieldOwner(s.Writer.Manager), client.DisableReadYourWritesConsistency)
	if apierrors.IsAlreadyExists(err) {
		return nil, outcome.ErrConflict
	}
	return secret, err
}

// leaf returns the certificate in a Secret, and replaces it in time. desired has all but the certificate. renew becomes
// the time of its renewal if that is earlier.
func (s *Store) leaf(ctx context.Context, owner ownership.Owner, desired *corev1.Secret, authority *pki.Authority, role pki.Role, now time.Time, renew *time.Time) (pki.Pair, error) {
	live, err := s.liveSecret(ctx, owner, client.ObjectKeyFromObject(desired))
	if err != nil {
		return pki.Pair{}, err
	}
	if live != nil {
		pair := pki.Pair{Certificate: live.Data[pki.CertificateFile], Key: live.Data[pki.KeyFile]}
		renewal, _, err := pki.RenewAt(pair.Certificate)
		if err == nil && now.Before(renewal) && authority.Signed(pair.Certificate, role) {
			*renew = earlier(*renew, renewal)
			return pair, nil
		}
	}
	pair, err := authority.Issue(role, now, s.Lifetime)
	if err != nil {
		return pki.Pair{}, err
	}
	renewal, _, err := pki.RenewAt(pair.Certificate)
	if err != nil {
		return pki.Pair{}, err
	}
	written := desired.DeepCopy()
	written.Data[pki.CertificateFile], written.Data[pki.KeyFile] = pair.Certificate, pair.Key
	if err := s.putSecret(ctx, owner, live, written); err != nil {
		return pki.Pair{}, err
	}
	*renew = earlier(*renew, renewal)
	return pair, nil
}

// MissingSecretError says that a Secret that a setting names does not exist. It is no conflict with another client, as
// it would be for a Secret of the pair's own.
type MissingSecretError struct{ setting, namespace, name string }

func (e *MissingSecretError) Error() string {
	return fmt.Sprintf("Secret %s/%s does not exist, which %s names: create it, or have an administrator change the setting", e.namespace, e.name, e.setting)
}

// CopyPullSecret copies the Secret with which nodes pull the image into the network. Only a pair that is being started
// needs it: nodes of a pair that runs have the image.
func (s *Store) CopyPullSecret(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, namespace string) error {
	if s.PullSecret == "" {
		return nil
	}
	owner, source := pairobjects.OwnerFor(p), &corev1.Secret{}
	if err := s.Writer.Live.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.PullSecret}, source); err != nil {
		if apply.Absent(err) {
			return &MissingSecretError{"TUNNEL_PULL_SECRET", s.Namespace, s.PullSecret}
		}
		return status.InOwnNamespace(fmt.Errorf("TUNNEL_PULL_SECRET: %w", err))
	}
	desired := &corev1.Secret{
		ObjectMeta: objectMeta(p, namespace, pairobjects.PartPull),
		Type:       source.Type,
		Data:       source.Data,
	}
	live, err := s.liveSecret(ctx, owner, client.ObjectKeyFromObject(desired))
	if err != nil || live != nil && equality.Semantic.DeepEqual(live.Data, desired.Data) {
		return err
	}
	return s.putSecret(ctx, owner, live, desired)
}

// liveSecret reads a Secret from the API server, because Secrets are not cached. Nil: it does not exist. The owner is checked
// before the data is used: a Secret of that name with the keys of another user would let that user call the proxies.
func (s *Store) liveSecret(ctx context.Context, owner ownership.Owner, key types.NamespacedName) (*corev1.Secret, error) {
	live := &corev1.Secret{}
	if err := s.Writer.Live.Get(ctx, key, live); err != nil {
		return nil, apply.IgnoreAbsent(err)
	}
	if !owner.Owns(live) {
		return nil, &ownership.RefusedError{Kind: "Secret", Namespace: key.Namespace, Name: key.Name}
	}
	if live.DeletionTimestamp != nil {
		return nil, &apply.TerminatingError{Kind: "Secret", Name: key.Name}
	}
	return live, nil
}

// putSecret creates a Secret, or replaces live.
func (s *Store) putSecret(ctx context.Context, owner ownership.Owner, live, desired *corev1.Secret) error {
	owner.SetOn(desired)
	if live != nil {
		// An update fails if another process has replaced the Secret since it was read.
		desired.ResourceVersion, desired.UID = live.ResourceVersion, live.UID
		return s.Client.Update(ctx, desired, client.FieldOwner(s.Writer.Manager), client.DisableReadYourWritesConsistency)
	}
	err := s.Client.Create(ctx, desired, client.FieldOwner(s.Writer.Manager), client.DisableReadYourWritesConsistency)
	if apierrors.IsAlreadyExists(err) {
		return outcome.ErrConflict
	}
	return err
}

// Delete deletes the Secrets of a pair. namespace is the namespace of its network, "" if it is gone.
func (s *Store) Delete(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, namespace string) error {
	owner := pairobjects.OwnerFor(p)
	var errs []error
	for _, key := range []struct{ namespace, part string }{
		{namespace, pairobjects.PartClient}, {namespace, pairobjects.PartPull}, {s.Namespace, pairobjects.PartServer}, {s.Namespace, pairobjects.PartControl},
	} {
		if key.namespace == "" {
			continue
		}
		live, err := s.liveSecret(ctx, owner, types.NamespacedName{Namespace: key.namespace, Name: pairobjects.Name(p.Name, key.part, p.UID)})
		var foreign *ownership.RefusedError
		var terminating *apply.TerminatingError
		switch {
		case errors.As(err, &foreign), errors.As(err, &terminating):
		case apierrors.IsForbidden(err):
			// The operator never had the rights, or no longer has them. The garbage collector deletes the Secret.
		case err != nil:
			errs = append(errs, err)
		case live != nil:
			// Rights of other families may let the operator read it and not delete it.
			if err := apply.Delete(ctx, s.Client, live, client.DisableReadYourWritesConsistency); !apierrors.IsForbidden(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
