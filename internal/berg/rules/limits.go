package rules

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// The limits of one instance. The schema holds some of them too, but not the sums, and
// Challenges may have been stored under another schema.
const (
	MaxContainers = 16
	MaxPorts      = 32 // maximum of a container
	MaxVariables  = 256
	MaxAdded      = 64  // capabilities of a container
	MaxWords      = 256 // maximum of a command, and of its arguments
	// MaxWord is the length of one word of a command, in characters. Linux refuses one of 128 KiB.
	MaxWord = 64 << 10

	// MaxAllPorts bounds the number of variables in every container, since each gets one for
	// every port, and thereby the size of a Deployment.
	MaxAllPorts = 128
	// MaxNodePorts keeps one Challenge from using up the node ports, of which a
	// cluster has 2768 by default.
	MaxNodePorts = 16
	// MaxEnvironment is the size of names and values of one container's variables,
	// in bytes. Linux refuses a single one of 128 KiB.
	MaxEnvironment = 64 << 10
	// MaxSnapshot is the maximum size of the containers, in bytes of JSON. They are stored in a
	// Secret, and etcd stores no object above 1.5 MiB.
	MaxSnapshot = 512 << 10
)

// validateSize returns the limits that a Challenge exceeds. It comes first, so that all other
// checks work on bounded input.
func validateSize(all []bergv1.Container) field.ErrorList {
	spec := field.NewPath("spec")
	parent := spec.Child("containers")
	if n := len(all); n > MaxContainers {
		return field.ErrorList{field.TooMany(parent, n, MaxContainers)}
	}
	var errs field.ErrorList
	ports, nodePorts := 0, 0
	for i, c := range all {
		errs = append(errs, validateContainerSize(parent.Index(i), c)...)
		ports += len(c.Ports)
		for _, p := range c.Ports {
			if p.OnNodePort() {
				nodePorts++
			}
		}
	}
	if ports > MaxAllPorts {
		errs = append(errs, field.Invalid(parent, ports, fmt.Sprintf("all containers together may have at most %d ports", MaxAllPorts)))
	}
	if nodePorts > MaxNodePorts {
		errs = append(errs, field.Invalid(parent, nodePorts, fmt.Sprintf("all containers together may have at most %d ports of type publicPort", MaxNodePorts)))
	}
	if data, err := json.Marshal(all); err != nil {
		errs = append(errs, field.InternalError(spec, err))
	} else if len(data) > MaxSnapshot {
		errs = append(errs, field.Invalid(parent, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("must be at most %d bytes as JSON", MaxSnapshot)))
	}
	return errs
}

func validateContainerSize(parent *field.Path, c bergv1.Container) field.ErrorList {
	var errs field.ErrorList
	atMost := func(name string, n, limit int) {
		if n > limit {
			errs = append(errs, field.TooMany(parent.Child(name), n, limit))
		}
	}
	atMost("ports", len(c.Ports), MaxPorts)
	words := func(name string, all []string) {
		atMost(name, len(all), MaxWords)
		for i, word := range all {
			if utf8.RuneCountInString(word) > MaxWord {
				errs = append(errs, field.TooLong(parent.Child(name).Index(i), "(not shown)", MaxWord))
			}
		}
	}
	words("command", c.Command)
	words("args", c.Args)
	atMost("environment", len(c.Environment), MaxVariables)
	atMost("additionalCapabilities", len(c.AdditionalCapabilities), MaxAdded)
	bytes := 0
	for name, value := range c.Environment {
		text, _ := value.Text()
		bytes += len(name) + len(text)
	}
	if bytes > MaxEnvironment {
		errs = append(errs, field.Invalid(parent.Child("environment"), fmt.Sprintf("%d bytes", bytes),
			fmt.Sprintf("names and values together must be at most %d bytes", MaxEnvironment)))
	}
	return errs
}
