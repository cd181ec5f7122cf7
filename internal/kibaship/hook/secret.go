package hook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// KeySecret is the Secret in the operator's namespace with the key of all secrets, in KeyName. The operator creates it.
const (
	KeySecret = "kibaship-pushes-key" //nolint:gosec // a name
	KeyName   = "key"
)

// Secret is what a provider signs the webhooks of one Application with.
type Secret [sha256.Size]byte

// target is the Application that a path names.
type target struct {
	namespace, name string
	uid             types.UID
}

func (t target) path() string { return NewPath(t.namespace, t.name, t.uid) }

// parse returns the target of a path. A route may leave a prefix before it. An empty one has a secret like any other, which the
// operator gives to nothing.
func parse(path string) (t target) {
	parts := strings.Split(path, "/")
	if n := len(parts); n > 3 {
		t = target{parts[n-3], parts[n-2], types.UID(parts[n-1])}
	}
	return t
}

// NewPath returns the path at which the webhooks of an Application arrive.
func NewPath(namespace, name string, uid types.UID) string {
	return "/" + namespace + "/" + name + "/" + string(uid)
}

// Derive returns the secret of a path. A new key changes the secrets of all paths.
func Derive(key []byte, path string) (secret Secret) {
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte(path))
	sum.Sum(secret[:0])
	return secret
}

// Text returns the secret as people give it to a provider.
func (s Secret) Text() string { return hex.EncodeToString(s[:]) }

// SigningToken returns the secret as the signing token of GitLab: https://www.standardwebhooks.com
func (s Secret) SigningToken() string { return "whsec_" + base64.StdEncoding.EncodeToString(s[:]) }
