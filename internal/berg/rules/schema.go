package rules

import (
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	v1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/naming"
)

// The patterns of the schema of a Challenge that Validate does not check. A test compares them with it.
var (
	portName  = regexp.MustCompile(`^$|^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	bandwidth = regexp.MustCompile(`^$|^[0-9]+(\.[0-9]+)?([kMGTP]i?)?$`)
	amount    = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPEkmgtpe]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`)
)

// SchemaErrors returns the errors that the API server finds in a Challenge and Validate does not.
func SchemaErrors(c *bergv1.Challenge) field.ErrorList {
	var errs field.ErrorList
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	if c.Name == "" && c.GenerateName == "" {
		errs = append(errs, field.Required(metadata.Child("name"), "name the Challenge"))
	} else if c.Name != "" {
		for _, msg := range validation.IsDNS1123Subdomain(c.Name) {
			errs = append(errs, field.Invalid(metadata.Child("name"), c.Name, msg))
		}
	}
	if c.Namespace != "" {
		for _, msg := range validation.IsDNS1123Label(c.Namespace) {
			errs = append(errs, field.Invalid(metadata.Child("namespace"), c.Namespace, msg))
		}
	}
	errs = append(errs, v1validation.ValidateLabels(c.Labels, metadata.Child("labels"))...)
	errs = append(errs, apivalidation.ValidateAnnotations(c.Annotations, metadata.Child("annotations"))...)
	if limit := c.Spec.HideUntil; limit != "" {
		if _, err := time.Parse(time.RFC3339, limit); err != nil {
			errs = append(errs, field.Invalid(spec.Child("hideUntil"), limit, "must be a time with a zone, for example 2030-01-31T18:00:00Z"))
		}
	}
	if mode := c.Spec.DynamicFlagMode; mode != "" && mode != "suffix" && mode != "leetify" {
		errs = append(errs, field.NotSupported(spec.Child("dynamicFlagMode"), mode, []string{"suffix", "leetify"}))
	}
	if text := c.Spec.ConnectionInfo; utf8.RuneCountInString(text) > maxConnectionInfo {
		errs = append(errs, field.TooLong(spec.Child("connectionInfo"), text, maxConnectionInfo))
	}
	if c.Spec.MaxInstances < 0 {
		errs = append(errs, field.Invalid(spec.Child("maxInstances"), c.Spec.MaxInstances, "must be 1 or more"))
	}
	if cost := c.Spec.Cost; cost != nil && *cost < 0 {
		errs = append(errs, field.Invalid(spec.Child("cost"), *cost, "must be 0 or more"))
	}
	for i, container := range c.Spec.Containers {
		errs = append(errs, containerSchema(spec.Child("containers").Index(i), container)...)
	}
	for _, e := range errs {
		e.Detail = naming.Sentence(e.Detail)
	}
	return errs
}

// The lengths of the schema that Validate does not check.
const (
	maxConnectionInfo = 1024
	maxImage          = 1024
	maxAppProtocol    = 63
	maxFlagVariable   = 253
)

func containerSchema(parent *field.Path, c bergv1.Container) field.ErrorList {
	var errs field.ErrorList
	short := func(fieldPath *field.Path, text string, limit int) {
		if len(text) > limit {
			errs = append(errs, field.TooLong(fieldPath, text, limit))
		}
	}
	short(parent.Child("image"), c.Image, maxImage)
	if f := c.DynamicFlag; f != nil && f.Env != nil {
		short(parent.Child("dynamicFlag", "env", "name"), f.Env.Name, maxFlagVariable)
	}
	for i, p := range c.Ports {
		fieldPath := parent.Child("ports").Index(i)
		short(fieldPath.Child("appProtocol"), p.AppProtocol, maxAppProtocol)
		if !portName.MatchString(p.Name) || len(p.Name) > 63 {
			errs = append(errs, field.Invalid(fieldPath.Child("name"), p.Name, "must have at most 63 letters, digits, dashes, dots and underscores, and begin and end with a letter or a digit"))
		}
		if !slices.Contains([]bergv1.Protocol{"", "tcp", "udp", "TCP", "UDP"}, p.Protocol) && slices.Contains([]string{"TCP", "UDP"}, string(p.Transport())) {
			errs = append(errs, field.NotSupported(fieldPath.Child("protocol"), p.Protocol, []string{"tcp", "udp", "TCP", "UDP"}))
		}
	}
	for name, text := range map[string]string{"egressBandwidth": c.EgressBandwidth, "ingressBandwidth": c.IngressBandwidth} {
		if !bandwidth.MatchString(text) {
			errs = append(errs, field.Invalid(parent.Child(name), text, "must be a number of bits per second, for example 10M"))
		}
	}
	for name, r := range map[string]*bergv1.Resources{"resourceRequests": c.ResourceRequests, "resourceLimits": c.ResourceLimits} {
		if r == nil {
			continue
		}
		for resource, a := range map[string]*bergv1.Amount{"cpu": r.CPU, "memory": r.Memory} {
			if _, err := formatAmount(a); a != nil && err == nil && !amount.MatchString(string(*a)) {
				errs = append(errs, field.Invalid(parent.Child(name, resource), *a, unreadableAmount(resource, *a)))
			}
		}
	}
	return errs
}

func formatAmount(a *bergv1.Amount) (string, error) {
	if a == nil {
		return "", nil
	}
	q, err := a.Quantity()
	if err != nil {
		return "", fmt.Errorf("read the amount: %w", err)
	}
	return q.String(), nil
}
