package challenge

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/naming"
)

const (
	// maxComponents and maxContainers are the limits of the schema; the definition may have been stored under another one.
	maxComponents, maxContainers = 16, 16
	// maxSnapshot is the maximum size in bytes, as JSON, of the components of a challenge. They are stored in its status,
	// and etcd stores no object above 1.5 MiB.
	maxSnapshot = 512 << 10
	// maxDuration is the maximum of the schema.
	maxDuration = 8760 * time.Hour
)

// validateIdentity returns the errors of the labels of a challenge. They become parts of names.
func validateIdentity(id Identity) field.ErrorList {
	parent := field.NewPath("metadata", "labels")
	var errs field.ErrorList
	for _, label := range []struct{ key, value string }{
		{hexactfv1.LabelChallengeID, id.ChallengeID},
		{hexactfv1.LabelUser, id.User},
	} {
		if label.value == "" {
			errs = append(errs, field.Required(parent.Key(label.key), "delete this Challenge and create one that has the label"))
			continue
		}
		if len(validation.IsDNS1123Label(label.value)) > 0 {
			errs = append(errs, field.Invalid(parent.Key(label.key), label.value,
				"must be lower-case letters, digits and '-', a letter or digit at both ends: delete this Challenge and create one with such a label"))
		}
	}
	return errs
}

// validate returns the errors of a definition, each with its field. The schema refuses most of them already; this is for
// rules that a schema cannot express, and for definitions that were stored under another schema.
func validate(definition *hexactfv1.ChallengeDefinition, cfg config.HexaCTF) field.ErrorList {
	parent := field.NewPath("spec", "components")
	components := definition.Spec.Components
	if len(components) == 0 {
		return field.ErrorList{field.Required(parent, "nothing to run")}
	}
	if len(components) > maxComponents {
		return field.ErrorList{field.TooMany(parent, len(components), maxComponents)}
	}
	if data, err := json.Marshal(components); err != nil {
		return field.ErrorList{field.InternalError(parent, err)}
	} else if len(data) > maxSnapshot {
		return field.ErrorList{field.Invalid(parent, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("must be at most %d bytes as JSON", maxSnapshot))}
	}
	var errs field.ErrorList
	names := sets.New[string]()
	for i, component := range components {
		fieldPath := parent.Index(i)
		if len(validation.IsDNS1123Label(component.Name)) > 0 {
			errs = append(errs, field.Invalid(fieldPath.Child("name"), component.Name, "must be lower-case letters, digits and '-', a letter or digit at both ends"))
		} else if names.Has(component.Name) {
			errs = append(errs, field.Duplicate(fieldPath.Child("name"), component.Name))
		}
		names.Insert(component.Name)
		errs = append(errs, validateDeployment(fieldPath.Child("deployment"), component.Deployment, cfg)...)
		errs = append(errs, validateService(fieldPath.Child("service", "spec"), component.Service)...)
	}
	if d := definition.Spec.Duration; d != nil && !validDuration(d.Duration) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "duration"), d.Duration.String(), "must be from 1s to 8760h"))
	}
	return errs
}

// validDuration reports whether a challenge may live so long.
func validDuration(d time.Duration) bool { return d >= time.Second && d <= maxDuration }

func validateDeployment(parent *field.Path, d *hexactfv1.Deployment, cfg config.HexaCTF) field.ErrorList {
	if d == nil {
		return field.ErrorList{field.Required(parent, "a component needs a deployment")}
	}
	var errs field.ErrorList
	if n := d.Spec.Replicas; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(parent.Child("spec", "replicas"), *n, "must not be negative"))
	}
	parent = parent.Child("spec", "template", "spec", "containers")
	containers := d.Spec.Template.Spec.Containers
	switch n := len(containers); {
	case n == 0:
		return append(errs, field.Required(parent, "nothing to run"))
	case n > maxContainers:
		return append(errs, field.TooMany(parent, n, maxContainers))
	}
	names := sets.New[string]()
	for i, c := range containers {
		fieldPath := parent.Index(i)
		for _, msg := range validation.IsDNS1123Label(c.Name) {
			errs = append(errs, field.Invalid(fieldPath.Child("name"), c.Name, naming.Sentence(msg)))
		}
		if names.Has(c.Name) {
			errs = append(errs, field.Duplicate(fieldPath.Child("name"), c.Name))
		}
		names.Insert(c.Name)
		if strings.TrimSpace(c.Image) == "" || c.Image != strings.TrimSpace(c.Image) {
			errs = append(errs, field.Invalid(fieldPath.Child("image"), c.Image, "must be an image reference without spaces around it"))
		}
		if len(c.VolumeMounts) > 0 {
			errs = append(errs, field.Forbidden(fieldPath.Child("volumeMounts"), "the pods of a component have no volumes"))
		}
		if len(c.VolumeDevices) > 0 {
			errs = append(errs, field.Forbidden(fieldPath.Child("volumeDevices"), "the pods of a component have no volumes"))
		}
		errs = append(errs, validateRights(cfg, fieldPath, c)...)
	}
	return errs
}

func validateService(parent *field.Path, s *hexactfv1.Service) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	switch s.Spec.Type {
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	default:
		errs = append(errs, field.NotSupported(parent.Child("type"), s.Spec.Type,
			[]corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}))
	}
	if len(s.Spec.Ports) == 0 {
		errs = append(errs, field.Required(parent.Child("ports"), "a Service without ports leads nowhere: leave the service out instead"))
	}
	for i, p := range s.Spec.Ports {
		for _, msg := range validation.IsValidPortNum(int(p.Port)) {
			errs = append(errs, field.Invalid(parent.Child("ports").Index(i).Child("port"), p.Port, msg))
		}
		if len(s.Spec.Ports) > 1 && p.Name == "" {
			errs = append(errs, field.Required(parent.Child("ports").Index(i).Child("name"), "each of several ports needs a name"))
		}
	}
	return errs
}
