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

// ParseCredentials reads one or more of them. If several have a login for the same registry or path, the first one is
// used. Errors quote nothing from the input.
func ParseCredentials(dockerConfigs ...[]byte) (Credentials, error) {
	c := Credentials{byRepository: map[string]authn.AuthConfig{}}
	for _, encoded := range dockerConfigs {
		var file struct {
			Auths map[string]authn.AuthConfig `json:"auths"`
		}
		if json.Unmarshal(encoded, &file) != nil || file.Auths == nil {
			return Credentials{}, errors.New("registry credentials are not in the format of .dockerconfigjson of a Secret: want {\"auths\": {REGISTRY: {\"auth\": …}}}")
		}
		for repository, config := range file.Auths {
			repository = normalize(repository)
			if _, known := c.byRepository[repository]; !known {
				c.byRepository[repository] = config
			}
		}
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
