package registry

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// ConfigKey is the key of a Secret of type kubernetes.io/dockerconfigjson.
const ConfigKey = ".dockerconfigjson"

// Logins are the logins of a Secret of type kubernetes.io/dockerconfigjson, by registry and, where
// several share a registry, by path.
type Logins map[string]authn.AuthConfig

// errLogins says no more than this: the faulty text may be next to a password.
var errLogins = errors.New(`must be JSON like {"auths":{"registry.example.org":{"username":"…","password":"…"}}}`)

// ParseLogins reads the content of the key ConfigKey. Its errors never contain any part of the content.
func ParseLogins(content []byte) (Logins, error) {
	var config struct {
		Auths map[string]struct {
			Username, Password, Auth string
			IdentityToken            string `json:"identitytoken"`
			RegistryToken            string `json:"registrytoken"`
		} `json:"auths"`
	}
	if err := json.Unmarshal(content, &config); err != nil || config.Auths == nil {
		return nil, errLogins
	}
	logins := Logins{}
	for address, login := range config.Auths {
		if login.Auth != "" {
			plain, err := base64.StdEncoding.DecodeString(login.Auth)
			if err != nil {
				return nil, errLogins
			}
			login.Username, login.Password, _ = strings.Cut(strings.TrimRight(string(plain), "\x00"), ":")
		}
		logins[normalize(address)] = authn.AuthConfig{
			Username: login.Username, Password: login.Password, IdentityToken: login.IdentityToken, RegistryToken: login.RegistryToken,
		}
	}
	return logins, nil
}

// normalize is host and path of a key as people write them: with a scheme, with the version of the
// API, or with one of the names that Docker Hub has.
func normalize(address string) string {
	address = strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://")
	address = strings.Trim(address, "/")
	for _, version := range []string{"/v1", "/v2"} {
		address = strings.TrimSuffix(address, version)
	}
	host, path, found := strings.Cut(address, "/")
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = name.DefaultRegistry
	}
	if !found {
		return host
	}
	return host + "/" + path
}

// For returns the login for a repository: the login with the most specific path above it, none
// where there is none.
func (l Logins) For(repository name.Repository) authn.Authenticator {
	for prefix := repository.RegistryStr() + "/" + repository.RepositoryStr(); prefix != ""; {
		if login, ok := l[prefix]; ok {
			return authn.FromConfig(login)
		}
		slash := strings.LastIndexByte(prefix, '/')
		if slash < 0 {
			break
		}
		prefix = prefix[:slash]
	}
	return authn.Anonymous
}

// Remove returns a text without the secrets of the logins, also as they stand in a Secret.
func (l Logins) Remove(text string) string {
	var secrets []string
	for _, login := range l {
		pair := login.Username + ":" + login.Password
		for _, secret := range []string{login.Password, login.IdentityToken, login.RegistryToken} {
			if secret != "" {
				secrets = append(secrets, secret, base64.StdEncoding.EncodeToString([]byte(secret)))
			}
		}
		if login.Password != "" {
			secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(pair)))
		}
	}
	// A secret may begin with another one.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "…")
	}
	return text
}
