package image

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Credentials are the logins for registries, as in the key .dockerconfigjson of a Secret. The zero value has none. They are
// never printed.
type Credentials struct{ byRepository map[string]authn.AuthConfig }

// ParseCredentials reads credentials. Its errors quote nothing from the input.
func ParseCredentials(encoded []byte) (Credentials, error) {
	var file struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if json.Unmarshal(encoded, &file) != nil || file.Auths == nil {
		return Credentials{}, errors.New("registry credentials are not in the format of .dockerconfigjson of a Secret: want {\"auths\": {REGISTRY: {\"auth\": …}}}")
	}
	c := Credentials{byRepository: map[string]authn.AuthConfig{}}
	for repository, config := range file.Auths {
		c.byRepository[normalize(repository)] = config
	}
	return c, nil
}

// normalize returns a registry, or a path in one, without scheme and API version.
func normalize(repository string) string {
	repository = strings.TrimPrefix(strings.TrimPrefix(repository, "https://"), "http://")
	repository = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(repository, "/"), "/v1"), "/v2")
	if repository == "docker.io" {
		return "index.docker.io"
	}
	return repository
}

// Resolve returns the login for a registry or a repository, from the most specific path that matches.
func (c Credentials) Resolve(target authn.Resource) (authn.Authenticator, error) {
	for repository := target.String(); repository != ""; {
		if config, ok := c.byRepository[repository]; ok {
			return authn.FromConfig(config), nil
		}
		slash := strings.LastIndex(repository, "/")
		if slash < 0 {
			break
		}
		repository = repository[:slash]
	}
	return authn.Anonymous, nil
}

// String hides the logins.
func (Credentials) String() string { return "credentials" }

// GoString hides the logins.
func (Credentials) GoString() string { return "credentials" }
