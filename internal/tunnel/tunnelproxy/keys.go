package tunnelproxy

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// authorityKey is the key of an authority in the Secret that the controller alone reads.
const authorityKey = "ca.key"

// authorityLifetime outlives every pair.
const authorityLifetime = 10 * 365 * 24 * time.Hour

// Keys are what the operator proves itself to a server proxy by, and what that has to show.
type Keys struct {
	// Controller is the operator's own identity.
	Controller *pki.Identity
	// Authority and Server are the files of the server proxy.
	Authority []byte
	Server    pki.Pair
	// Renew is when the first of the certificates should be replaced.
	Renew time.Time
}

// keys makes and renews what the proxies of a pair prove themselves by: an authority and its
// key in the operator's namespace, and for each proxy a certificate in a Secret beside its pod.
// Everything is read from Secrets; nothing of it is told to anybody else.
func (r *Reconciler) keys(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, namespace string, now time.Time) (Keys, error) {
	if known, ok := r.memory.keys(p.UID); ok && now.Before(known.Renew) {
		return known, nil
	}
	owner := ownerOf(p)
	control, err := r.controlSecret(ctx, p, owner, now)
	if err != nil {
		return Keys{}, inOwnNamespace(err)
	}
	authority, err := pki.ParseAuthority(pki.Pair{Certificate: control.Data[pki.AuthorityFile], Key: control.Data[authorityKey]})
	if err != nil {
		return Keys{}, fmt.Errorf("secret %s/%s: %w: delete this object and create another one", control.Namespace, control.Name, err)
	}
	k := Keys{Authority: authority.Certificate, Renew: authority.NotAfter()}
	own, err := r.leaf(ctx, owner, control, authority, pki.Controller, now, &k.Renew)
	if err != nil {
		return Keys{}, inOwnNamespace(err)
	}
	if k.Controller, err = pki.NewIdentity(authority.Certificate, own); err != nil {
		return Keys{}, err
	}
	for _, end := range []struct {
		namespace, part string
		role            pki.Role
	}{{namespace, partClient, pki.ClientProxy}, {r.Namespace, partServer, pki.ServerProxy}} {
		secret := &corev1.Secret{ObjectMeta: metaOf(p.UID, p.Name, end.namespace, objectName(p.Name, end.part, p.UID), "")}
		secret.Type = corev1.SecretTypeTLS
		secret.Data = map[string][]byte{pki.AuthorityFile: authority.Certificate}
		pair, err := r.leaf(ctx, owner, secret, authority, end.role, now, &k.Renew)
		if end.role == pki.ServerProxy {
			k.Server, err = pair, inOwnNamespace(err)
		}
		if err != nil {
			return Keys{}, err
		}
	}
	r.memory.setKeys(p.UID, k)
	return k, nil
}

// controlSecret returns the Secret with the authority, which is made once.
func (r *Reconciler) controlSecret(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, owner ownership.Owner, now time.Time) (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: metaOf(p.UID, p.Name, r.Namespace, objectName(p.Name, partControl, p.UID), "")}
	live, err := r.liveSecret(ctx, owner, client.ObjectKeyFromObject(secret))
	if err != nil || live != nil {
		return live, err
	}
	authority, err := pki.NewAuthority("tunnel proxy "+p.Name, now, authorityLifetime)
	if err != nil {
		return nil, err
	}
	pair, err := authority.Issue(pki.Controller, now, r.Config.CertificateLifetime)
	if err != nil {
		return nil, err
	}
	secret.Data = map[string][]byte{
		pki.AuthorityFile: authority.Certificate, authorityKey: authority.Key,
		pki.CertificateFile: pair.Certificate, pki.KeyFile: pair.Key,
	}
	owner.SetOn(secret)
	// Another attempt finds it, should the answer be lost.
	err = r.Client.Create(ctx, secret, client.FieldOwner(r.Writer.Manager), client.DisableReadYourWritesConsistency)
	if apierrors.IsAlreadyExists(err) {
		return nil, outcome.ErrConflict
	}
	return secret, err
}

// leaf returns the certificate that a Secret holds, and replaces it in time. desired has all
// but the certificate. renew becomes the time of its renewal if that comes first.
func (r *Reconciler) leaf(ctx context.Context, owner ownership.Owner, desired *corev1.Secret, authority *pki.Authority, role pki.Role, now time.Time, renew *time.Time) (pki.Pair, error) {
	live, err := r.liveSecret(ctx, owner, client.ObjectKeyFromObject(desired))
	if err != nil {
		return pki.Pair{}, err
	}
	if live != nil {
		pair := pki.Pair{Certificate: live.Data[pki.CertificateFile], Key: live.Data[pki.KeyFile]}
		at, _, err := pki.RenewAt(pair.Certificate)
		if err == nil && now.Before(at) && authority.Signed(pair.Certificate, role) {
			*renew = earlier(*renew, at)
			return pair, nil
		}
	}
	pair, err := authority.Issue(role, now, r.Config.CertificateLifetime)
	if err != nil {
		return pki.Pair{}, err
	}
	at, _, err := pki.RenewAt(pair.Certificate)
	if err != nil {
		return pki.Pair{}, err
	}
	written := desired.DeepCopy()
	written.Data[pki.CertificateFile], written.Data[pki.KeyFile] = pair.Certificate, pair.Key
	if err := r.putSecret(ctx, owner, live, written); err != nil {
		return pki.Pair{}, err
	}
	*renew = earlier(*renew, at)
	return pair, nil
}

// missingSecretError is the error of a Secret that a setting names and nobody has made: it is not
// one of the pair's own, of which a missing one means that somebody was faster.
type missingSecretError struct{ setting, namespace, name string }

func (e *missingSecretError) Error() string {
	return fmt.Sprintf("There is no Secret %s/%s, which %s names: create it, or have an administrator name another one", e.namespace, e.name, e.setting)
}

// pullSecret copies what nodes log in at the registry with. Only a pair that is being started
// needs it: what runs has its image.
func (r *Reconciler) pullSecret(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, namespace string) error {
	if r.Config.RegistrySecret == "" {
		return nil
	}
	owner, source := ownerOf(p), &corev1.Secret{}
	if err := r.Writer.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Config.RegistrySecret}, source); err != nil {
		if apply.Absent(err) {
			return &missingSecretError{"TUNNEL_REGISTRY_SECRET", r.Namespace, r.Config.RegistrySecret}
		}
		return inOwnNamespace(fmt.Errorf("TUNNEL_REGISTRY_SECRET: %w", err))
	}
	desired := &corev1.Secret{
		ObjectMeta: metaOf(p.UID, p.Name, namespace, objectName(p.Name, partPull, p.UID), ""),
		Type:       source.Type,
		Data:       source.Data,
	}
	live, err := r.liveSecret(ctx, owner, client.ObjectKeyFromObject(desired))
	if err != nil || live != nil && equality.Semantic.DeepEqual(live.Data, desired.Data) {
		return err
	}
	return r.putSecret(ctx, owner, live, desired)
}

// liveSecret reads a Secret from the API server: none is kept in memory. Nil: there is none.
func (r *Reconciler) liveSecret(ctx context.Context, owner ownership.Owner, key types.NamespacedName) (*corev1.Secret, error) {
	live := &corev1.Secret{}
	if err := r.Writer.Live.Get(ctx, key, live); err != nil {
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

// putSecret creates a Secret, or replaces what live holds.
func (r *Reconciler) putSecret(ctx context.Context, owner ownership.Owner, live, desired *corev1.Secret) error {
	owner.SetOn(desired)
	if live != nil {
		desired.ResourceVersion, desired.UID = live.ResourceVersion, live.UID
		return r.Client.Update(ctx, desired, client.FieldOwner(r.Writer.Manager), client.DisableReadYourWritesConsistency)
	}
	err := r.Client.Create(ctx, desired, client.FieldOwner(r.Writer.Manager), client.DisableReadYourWritesConsistency)
	if apierrors.IsAlreadyExists(err) {
		return outcome.ErrConflict
	}
	return err
}

// dropSecrets deletes the Secrets of a pair. namespace is that of its network, "" if it is gone.
func (r *Reconciler) dropSecrets(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, namespace string) error {
	owner := ownerOf(p)
	var errs []error
	for _, key := range []struct{ namespace, part string }{
		{namespace, partClient}, {namespace, partPull}, {r.Namespace, partServer}, {r.Namespace, partControl},
	} {
		if key.namespace == "" {
			continue
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.namespace, Name: objectName(p.Name, key.part, p.UID)}}
		live, err := r.liveSecret(ctx, owner, client.ObjectKeyFromObject(secret))
		var foreign *ownership.RefusedError
		var going *apply.TerminatingError
		switch {
		case errors.As(err, &foreign), errors.As(err, &going):
		case apierrors.IsForbidden(err):
			// Rights that were never given, or are taken away. What there is, if anything, goes
			// with its owner: nobody is kept for it.
		case err != nil:
			errs = append(errs, err)
		case live != nil:
			// Other families may let the operator read it, and not delete it.
			if err := apply.Delete(ctx, r.Client, live, client.DisableReadYourWritesConsistency); !apierrors.IsForbidden(err) {
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
