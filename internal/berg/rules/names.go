package rules

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

const (
	// NodePortSuffix after a hostname names the Service with the node ports of a container.
	NodePortSuffix = "-node-port"
	// HeadlessSuffix after a hostname names the headless Service of a container.
	HeadlessSuffix = "-headless"

	// EntropyPlaceholder in a path is replaced by the entropy of the instance.
	EntropyPlaceholder = "{entropy}"
	// MaxEntropy is as long as every entropy.
	MaxEntropy = "000000000000"
)

// WithEntropy returns the path of a flag file with the entropy of an instance.
func WithEntropy(path, entropy string) string {
	return strings.ReplaceAll(path, EntropyPlaceholder, entropy)
}

// Capability returns the name that Kubernetes uses for a capability: without CAP_.
func Capability(name string) string { return strings.TrimPrefix(name, "CAP_") }

// EndpointVariable is the variable with the address of a port: its name in upper case, every character other than
// A-Z and 0-9 as "_", and "_ENDPOINT". It is empty without a name.
func EndpointVariable(portName string) string {
	if portName == "" {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(portName)) + "_ENDPOINT"
}

// Literal returns the value of a variable of a pod that reaches its program as text. Kubernetes expands $(NAME) and
// $$ in values.
func Literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// AuthorResources returns the amounts that the author wrote, empty where there are none.
func AuthorResources(c bergv1.Container) (requests, limits bergv1.Resources) {
	if c.ResourceRequests != nil {
		requests = *c.ResourceRequests
	}
	if c.ResourceLimits != nil {
		limits = *c.ResourceLimits
	}
	return requests, limits
}

// Quantity parses an amount that Validate has accepted.
func Quantity(a bergv1.Amount) resource.Quantity {
	q, _ := a.Quantity()
	return q
}
