package image

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Credentials are what registries want to be shown, as the key .dockerconfigjson of a Secret has
// them. The zero value shows nothing. They are never printed.
type Credentials struct{ byPlace map[string]authn.AuthConfig }

// ParseCredentials reads several of them; of two for one place the first counts. Errors quote
// nothing of what was read.
func ParseCredentials(dockerConfigs ...[]byte) (Credentials, error) {
	c := Credentials{byPlace: map[string]authn.AuthConfig{}}
	for _, encoded := range dockerConfigs {
		var file struct {
			Auths map[string]authn.AuthConfig `json:"auths"`
		}
		if json.Unmarshal(encoded, &file) != nil || file.Auths == nil {
			return Credentials{}, errors.New("registry credentials are not what .dockerconfigjson of a Secret holds: want {\"auths\": {REGISTRY: {\"auth\": …}}}")
		}
		for place, config := range file.Auths {
			place = normalize(place)
			if _, known := c.byPlace[place]; !known {
				c.byPlace[place] = config
			}
		}
	}
	return c, nil
}

// normalize returns a registry, or a part of one, without what is written around it.
func normalize(place string) string {
	place = strings.TrimPrefix(strings.TrimPrefix(place, "https://"), "http://")
	place = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(place, "/"), "/v1"), "/v2")
	if place == "docker.io" {
		return "index.docker.io"
	}
	return place
}

// Resolve returns what to show to a registry or a repository: of the places that match, the
// longest one's.
func (c Credentials) Resolve(target authn.Resource) (authn.Authenticator, error) {
	for place := target.String(); place != ""; {
		if config, ok := c.byPlace[place]; ok {
			return authn.FromConfig(config), nil
		}
		slash := strings.LastIndex(place, "/")
		if slash < 0 {
			break
		}
		place = place[:slash]
	}
	return authn.Anonymous, nil
}

// String tells nothing.
func (Credentials) String() string { return "credentials" }

// GoString tells nothing either.
func (Credentials) GoString() string { return "credentials" }
