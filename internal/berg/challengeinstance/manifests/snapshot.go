package manifests

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/config"
)

// Snapshot is the content that the pods of an instance are built from: a live instance is repaired to the state it was
// started with. A later state of the Challenge or of the configuration would restart its pods. The whole snapshot is
// private: authors may put passwords into any field of a container. Only Secrets hold it; a status has no field for any
// part.
type Snapshot struct {
	AllowOutboundTraffic bool               `json:"allowOutboundTraffic,omitempty"`
	Containers           []bergv1.Container `json:"containers,omitempty"`
	// Flag is the flag of the Challenge, which programs in its images may know. It is stored to be redacted, not to be
	// given to pods.
	Flag     string          `json:"flag,omitempty"`
	Defaults config.Defaults `json:"defaults"`
}

// Normalize returns the snapshot of a Challenge in a form that survives being stored, and in which two Challenges with the
// same pods are equal. Values of variables are strings, as a container reads them. The Defaults are not set.
func Normalize(c *bergv1.Challenge) Snapshot {
	s := Snapshot{AllowOutboundTraffic: c.Spec.AllowOutboundTraffic, Flag: c.Spec.Flag, Containers: slices.Clone(c.Spec.Containers)}
	for i := range s.Containers {
		c := &s.Containers[i]
		if len(c.Environment) == 0 {
			continue
		}
		texts := make(map[string]bergv1.EnvironmentValue, len(c.Environment))
		for name, value := range c.Environment {
			if text, err := value.Text(); err == nil { // Validate refuses the others
				value = bergv1.StringValue(text)
			}
			texts[name] = value
		}
		c.Environment = texts
	}
	return s
}

// NewSnapshot returns the snapshot of an instance that starts now.
func NewSnapshot(c *bergv1.Challenge, cfg config.Challenge) Snapshot {
	s := Normalize(c)
	s.Defaults = cfg.Resolved()
	return s
}

// Validate returns the errors of the Challenge, each naming its field. allowed are the permissions that the administrator
// gives.
func (s Snapshot) Validate(allowed rules.Allowed) field.ErrorList {
	return rules.Validate(s.Containers, allowed)
}

// Matches reports whether a Challenge results in the same pods. The flag of the Challenge does not affect them. It compares
// encoded forms: the API server may have reordered the keys of a map.
func (s Snapshot) Matches(c *bergv1.Challenge) bool {
	now := Normalize(c)
	now.Flag, now.Defaults = s.Flag, s.Defaults
	return same(s, now)
}

// Equals reports whether two snapshots result in the same pods and the same addresses.
func (s Snapshot) Equals(other Snapshot) bool { return same(s, other) }

// same reports whether two values are the same in JSON.
func same(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
