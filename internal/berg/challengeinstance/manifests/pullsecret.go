package manifests

import (
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// PullSecretUse is the copy of the pull secret that a container uses.
type PullSecretUse struct {
	// Name of the copy: the name of the source, or OwnPullSecretName.
	Name string
	// Version of the source that was copied; "" if unknown, or if there was none.
	Version string
}

// pullSecretFor returns the copy that a container uses.
func (in Inputs) pullSecretFor(container string) PullSecretUse {
	if use, ok := in.PullSecrets[container]; ok {
		return use
	}
	return PullSecretUse{Name: in.Config.PullSecretName}
}

// PullSecretVersion identifies a version of the source, for this instance only. It is derived
// from the resourceVersion and not from the content, which must not be guessable from it.
func (in Inputs) PullSecretVersion(source *corev1.Secret) string {
	return hex.EncodeToString(in.secret("pull-secret", string(source.UID), source.ResourceVersion))[:12]
}

// maxPullSecret leaves space for a version in the 253 characters of a name.
const maxPullSecret = 240

// OwnPullSecretName is the name of a copy that only the operator can have created: the version is derived from the seed of
// the instance and the version of the source.
func OwnPullSecretName(name, version string) string {
	return strings.TrimRight(name[:min(len(name), maxPullSecret)], "-.") + "-" + version
}

// formatPullSecretUse formats a use for an annotation, and ParsePullSecretUse reads it. A value that names neither the
// configured secret nor one of its copies is foreign or out of date.
func formatPullSecretUse(use PullSecretUse) string { return use.Name + "/" + use.Version }

// ParsePullSecretUse reads the annotation of a Deployment.
func ParsePullSecretUse(noted, configured string) PullSecretUse {
	name, version, _ := strings.Cut(noted, "/")
	if version == "" || name != configured && name != OwnPullSecretName(configured, version) {
		return PullSecretUse{Name: configured}
	}
	return PullSecretUse{Name: name, Version: version}
}

// PullSecret copies only the data: no labels or owner references of the source. It has the owner of the instance, so it is
// deleted with the others.
func PullSecret(in Inputs, source *corev1.Secret, name string) *corev1.Secret {
	copied := &corev1.Secret{
		ObjectMeta: in.meta(name, "pull-secret"),
		Type:       source.Type,
		Data:       source.Data,
	}
	OwnershipLabels.For(in.UID, nil).SetOn(copied)
	return copied
}
