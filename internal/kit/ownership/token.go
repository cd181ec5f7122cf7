package ownership

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Token identifies, in addition to an Owner's UID, a cluster-scoped object that was created for its custom
// resource. Every user who may read the resource can copy the UID, and every user who may create namespaces
// can create one of that name first.
//
// So the status gets the SHA-256 of a random secret before the object is created, and the object carries the
// secret: only the process that drew the secret can create an object that agrees with the status. When the
// object exists, the secret is no secret any more, and the status gets the UID of the object instead.
type Token struct {
	// UID is the UID of the object, from the status. Once it is known, no other object is owned.
	UID types.UID
	// Digest is the SHA-256 of the secret, from the status.
	Digest string
	// Secret agrees with Digest. Empty: this process does not know it and cannot create the object.
	Secret string
}

// tokenAnnotation is the key of the annotation with the secret.
func (p Owner) tokenAnnotation() string {
	domain, _, _ := strings.Cut(p.Annotation, "/")
	return domain + "/namespace-token"
}

// matchesToken reports whether an object was created for the custom resource.
func (p Owner) matchesToken(obj client.Object) bool {
	switch {
	case p.Token == nil:
		return true
	case p.Token.UID != "":
		return p.Token.UID == obj.GetUID()
	default:
		return p.Token.Digest != "" && sha256Hex(obj.GetAnnotations()[p.tokenAnnotation()]) == p.Token.Digest
	}
}

// MayCreate reports whether a new object would be owned.
func (p Owner) MayCreate() bool {
	return p.Token == nil || p.Token.UID == "" && p.Token.Digest != "" && sha256Hex(p.Token.Secret) == p.Token.Digest
}

// SetTokenOn puts the secret on an object that is about to be created. It is no part of the plan: an object keeps it.
func (p Owner) SetTokenOn(obj client.Object) {
	if p.Token == nil || !p.MayCreate() {
		return
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[p.tokenAnnotation()] = p.Token.Secret
	obj.SetAnnotations(annotations)
}

func sha256Hex(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// maxSecrets is more than the number of objects that are about to be created. A forgotten secret costs
// another write of the status.
const maxSecrets = 1 << 13

// Tokens holds the most recent secrets that this process has drawn. They are never persisted: a
// process that did not draw a secret cannot create its object. The zero value is ready for use.
type Tokens struct {
	once     sync.Once
	byDigest *lru.Cache
}

func (s *Tokens) known() *lru.Cache {
	s.once.Do(func() { s.byDigest = lru.New(maxSecrets) })
	return s.byDigest
}

// Draw returns the digest of a new secret, which goes into the status. The secret stays in memory until the object is created. If
// the process is killed before, no process knows it, and another digest must go into the status: see apply.PrepareNamespace.
func (s *Tokens) Draw() (digest string) {
	secret := rand.Text()
	digest = sha256Hex(secret)
	s.known().Add(digest, secret)
	return digest
}

// Token returns the token for the fields of a status.
func (s *Tokens) Token(uid types.UID, digest string) *Token {
	p := &Token{UID: uid, Digest: digest}
	// With a UID in the status the namespace has existed, and every reader of namespaces could copy its secret. Another one needs
	// another digest.
	if secret, known := s.known().Get(digest); known && uid == "" {
		p.Secret = secret.(string)
	}
	return p
}

// Complete returns an owner whose Token has its secret, if this process has drawn it: with that the object can be created.
func (s *Tokens) Complete(owner Owner) Owner {
	if owner.Token != nil {
		owner.Token = s.Token(owner.Token.UID, owner.Token.Digest)
	}
	return owner
}
