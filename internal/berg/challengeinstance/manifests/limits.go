package manifests

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// The limits of one instance. The schema holds some of them too, but not the sums, and
// Challenges may have been stored under another schema.
const (
	maxContainers = 16
	maxPorts      = 32 // of a container
	maxVariables  = 256
	maxAdded      = 64 // capabilities of a container

	// maxAllPorts bounds the number of variables in every container, since each gets one for
	// every port, and thereby the size of a Deployment.
	maxAllPorts = 128
	// maxNodePorts keeps one Challenge from using up the node ports, of which a
	// cluster has 2768 by default.
	maxNodePorts = 16
	// maxEnvironment is the size of names and values of one container's variables,
	// in bytes. Linux refuses a single one of 128 KiB.
	maxEnvironment = 64 << 10
	// maxSnapshot is the maximum size of a Snapshot, in bytes of JSON. It is stored in the
	// status of the instance, and etcd stores no object above 1.5 MiB.
	maxSnapshot = 512 << 10
)

// validateSize returns the limits that a Challenge exceeds. It comes before every other
// check, so that those work on bounded input.
func validateSize(s Snapshot) field.ErrorList {
	spec := field.NewPath("spec")
	at := spec.Child("containers")
	if n := len(s.Containers); n > maxContainers {
		return field.ErrorList{field.TooMany(at, n, maxContainers)}
	}
	var errs field.ErrorList
	ports, nodePorts := 0, 0
	for i, c := range s.Containers {
		errs = append(errs, validateContainerSize(at.Index(i), c)...)
		ports += len(c.Ports)
		for _, p := range c.Ports {
			if p.OnNodePort() {
				nodePorts++
			}
		}
	}
	if ports > maxAllPorts {
		errs = append(errs, field.Invalid(at, ports, fmt.Sprintf("all containers together may have at most %d ports", maxAllPorts)))
	}
	if nodePorts > maxNodePorts {
		errs = append(errs, field.Invalid(at, nodePorts, fmt.Sprintf("all containers together may have at most %d ports of type publicPort", maxNodePorts)))
	}
	if data, err := json.Marshal(s); err != nil {
		errs = append(errs, field.InternalError(spec, err))
	} else if len(data) > maxSnapshot {
		errs = append(errs, field.Invalid(at, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("must be at most %d bytes as JSON", maxSnapshot)))
	}
	return errs
}

func validateContainerSize(at *field.Path, c bergv1.Container) field.ErrorList {
	var errs field.ErrorList
	atMost := func(name string, n, limit int) {
		if n > limit {
			errs = append(errs, field.TooMany(at.Child(name), n, limit))
		}
	}
	atMost("ports", len(c.Ports), maxPorts)
	atMost("environment", len(c.Environment), maxVariables)
	atMost("additionalCapabilities", len(c.AdditionalCapabilities), maxAdded)
	bytes := 0
	for name, value := range c.Environment {
		text, _ := value.Text()
		bytes += len(name) + len(text)
	}
	if bytes > maxEnvironment {
		errs = append(errs, field.Invalid(at.Child("environment"), fmt.Sprintf("%d bytes", bytes),
			fmt.Sprintf("names and values together must be at most %d bytes", maxEnvironment)))
	}
	return errs
}
