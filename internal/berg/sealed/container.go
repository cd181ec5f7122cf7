// Package sealed is the form in which status.challengeSnapshot stores the containers of a Challenge. Who may read an
// instance need not be allowed to read its Challenge, so what an author may keep secret is encrypted: the operator
// alone reads it.
package sealed

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Container is a container as a snapshot stores it.
type Container struct {
	bergv1.Container
	// Environment takes the place of the container's own field of that name.
	Environment Variables `json:"environment,omitzero"`
}

// Variables are those of a container.
type Variables struct {
	// Values are by name. They are nil if the snapshot is sealed.
	Values map[string]bergv1.EnvironmentValue
	// Names are sorted. They are nil if the snapshot is not sealed, and empty for a sealed one without variables.
	Names []string
}

// IsZero reports whether the field is left out.
func (v Variables) IsZero() bool { return len(v.Values) == 0 && v.Names == nil }

// Sealed reports whether the values are hidden.
func (v Variables) Sealed() bool { return v.Names != nil }

// MarshalJSON returns an object of values, or a list of names. Versions that know objects alone refuse the list: they
// would restart the pods of the instance without its variables.
func (v Variables) MarshalJSON() ([]byte, error) {
	if v.Sealed() {
		return json.Marshal(v.Names)
	}
	return json.Marshal(v.Values)
}

// UnmarshalJSON reads both.
func (v *Variables) UnmarshalJSON(data []byte) error {
	*v = Variables{}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		v.Names = []string{}
		return json.Unmarshal(data, &v.Names)
	}
	return json.Unmarshal(data, &v.Values)
}

// Private is what of a container its author may keep secret: programs get passwords and tokens by variables and by
// arguments, and probes send them.
type Private struct {
	Environment    map[string]bergv1.EnvironmentValue `json:"environment,omitempty"`
	Command        []string                           `json:"command,omitempty"`
	Args           []string                           `json:"args,omitempty"`
	ReadinessProbe *corev1.Probe                      `json:"readinessProbe,omitempty"`
	LivenessProbe  *corev1.Probe                      `json:"livenessProbe,omitempty"`
}

// PrivateOf returns it of a container.
func PrivateOf(c bergv1.Container) Private {
	return Private{
		Environment: c.Environment, Command: c.Command, Args: c.Args, ReadinessProbe: c.ReadinessProbe, LivenessProbe: c.LivenessProbe,
	}
}

// IsZero reports whether the container has nothing of the kind.
func (p Private) IsZero() bool {
	return len(p.Environment) == 0 && len(p.Command) == 0 && len(p.Args) == 0 && p.ReadinessProbe == nil && p.LivenessProbe == nil
}

// Put puts it into a container.
func (p Private) Put(into *bergv1.Container) {
	into.Environment, into.Command, into.Args = p.Environment, p.Command, p.Args
	into.ReadinessProbe, into.LivenessProbe = p.ReadinessProbe, p.LivenessProbe
}

// Plain returns a container with everything readable.
func Plain(c bergv1.Container) Container {
	return Container{Container: c, Environment: Variables{Values: c.Environment}}
}

// Public returns a container without what is private, but for the names of its variables.
func Public(c bergv1.Container) Container {
	names := slices.Sorted(maps.Keys(c.Environment))
	if names == nil {
		names = []string{}
	}
	Private{}.Put(&c)
	return Container{Container: c, Environment: Variables{Names: names}}
}

// Open returns the container without what is sealed: of its variables it has the names, without values.
func (c Container) Open() bergv1.Container {
	c.Container.Environment = c.Environment.Values
	if len(c.Environment.Names) > 0 {
		c.Container.Environment = make(map[string]bergv1.EnvironmentValue, len(c.Environment.Names))
		for _, name := range c.Environment.Names {
			c.Container.Environment[name] = bergv1.EnvironmentValue{}
		}
	}
	return c.Container
}
