// Package tokens decides which program may use which endpoint of the API, in which namespace.
package tokens

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// minLength of a token, in characters: 128 bits in hexadecimal digits have 32.
const minLength = 16

// maxLength of a token, in characters. Longer texts are not hashed, so that a request cannot cost much.
const maxLength = 512

// The endpoints of the API, as the Secret names them.
const (
	EndpointChallManager = "chall-manager"
	EndpointRCTF         = "rctf"
	EndpointBerg         = "berg"
	EndpointV1           = "v1"
	EndpointLivePage     = "live"
)

// Endpoints lists every endpoint.
var Endpoints = []string{EndpointChallManager, EndpointRCTF, EndpointBerg, EndpointV1, EndpointLivePage}

// Grant is the permission that one token gives.
type Grant struct {
	// Name is the key in the Secret, which logs and metrics show.
	Name string `json:"name"`
	// Endpoint is one of Endpoints.
	Endpoint string `json:"endpoint"`
	// Namespace that instances and registrations of the token are in. Default: the API's PLATFORM_NAMESPACE.
	Namespace string `json:"namespace,omitempty"`
}

// storedGrant is a Grant with its token, as the Secret has it.
type storedGrant struct {
	Grant `json:",inline"`
	Token string `json:"token"`
}

// Set is the tokens of one version of the Secret. Its zero value opens nothing. It never changes after Parse, so it needs no
// lock.
type Set struct{ grants map[[sha256.Size]byte]Grant }

// Parse reads the Secret, in which each key has a YAML text: endpoint, token, and namespace if it is not defaultNamespace.
// The key is the name. An error names every wrong key, and no token. The Set then has the valid tokens, so that one
// mistake does not lock out every platform.
func Parse(data map[string][]byte, defaultNamespace string, namespaces []string) (*Set, error) {
	set := &Set{grants: map[[sha256.Size]byte]Grant{}}
	names := make([]string, 0, len(data))
	for name := range data {
		names = append(names, name)
	}
	slices.Sort(names)
	var errs []error
	for _, name := range names {
		parsed, err := parse(data[name], defaultNamespace, namespaces)
		if err == nil {
			parsed.Name = name
			err = set.add(parsed)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("key %s: %w", name, err))
		}
	}
	return set, errors.Join(errs...)
}

// parse returns errors that repeat neither the token nor the text around it.
func parse(text []byte, defaultNamespace string, namespaces []string) (storedGrant, error) {
	var parsed storedGrant
	if err := yaml.UnmarshalStrict(text, &parsed); err != nil {
		// The error of the parser may repeat the text, which has the token.
		return storedGrant{}, errors.New("must be YAML with endpoint, token and, optionally, namespace")
	}
	if parsed.Namespace == "" {
		parsed.Namespace = defaultNamespace
	}
	switch {
	case parsed.Name != "":
		return storedGrant{}, errors.New("name: the name is the key of the Secret; remove the field")
	case !slices.Contains(Endpoints, parsed.Endpoint):
		return storedGrant{}, fmt.Errorf("endpoint: must be one of %s", strings.Join(Endpoints, ", "))
	case len(parsed.Token) < minLength || len(parsed.Token) > maxLength:
		return storedGrant{}, fmt.Errorf("token: must have %d to %d characters; make one with: openssl rand -hex 32", minLength, maxLength)
	case len(validation.IsDNS1123Label(parsed.Namespace)) > 0:
		return storedGrant{}, errors.New("namespace: must be the name of a namespace")
	case !slices.Contains(namespaces, parsed.Namespace):
		return storedGrant{}, fmt.Errorf("namespace: %s is not one of the API's namespaces (PLATFORM_NAMESPACE): %s", parsed.Namespace, strings.Join(namespaces, ", "))
	}
	return parsed, nil
}

// add refuses a token that another key has, because its namespace and endpoint would depend on the order of keys.
func (s *Set) add(added storedGrant) error {
	key := sha256.Sum256([]byte(added.Token))
	if other, taken := s.grants[key]; taken {
		return fmt.Errorf("token: it is that of key %s; each entry needs a token of its own", other.Name)
	}
	s.grants[key] = added.Grant
	return nil
}

// Len is the number of tokens.
func (s *Set) Len() int { return len(s.grants) }

// Opens reports whether any token is for an endpoint.
func (s *Set) Opens(endpoint string) bool {
	for _, grant := range s.grants {
		if grant.Endpoint == endpoint {
			return true
		}
	}
	return false
}

// Find returns the Grant of a token. It looks up a hash, so that the duration of the lookup does not depend on how much
// of a guessed token is right.
func (s *Set) Find(token string) (Grant, bool) {
	if s == nil || token == "" || len(token) > maxLength {
		return Grant{}, false
	}
	grant, ok := s.grants[sha256.Sum256([]byte(token))]
	return grant, ok
}

// Store is the Set that is valid now. Its zero value opens nothing.
type Store struct{ now atomic.Pointer[Set] }

// Replace makes a Set the valid one.
func (s *Store) Replace(set *Set) { s.now.Store(set) }

// Find returns the Grant of a token in the current Set. It may be called concurrently with Replace.
func (s *Store) Find(token string) (Grant, bool) { return s.now.Load().Find(token) }

// FromRequest returns the token of a request, from the header Authorization (Bearer, or the password of Basic) or from
// X-Ctfd-Auth. It returns "" without a token. The first of them that a request has counts.
func FromRequest(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return r.Header.Get("X-Ctfd-Auth")
}
