package manifests

import (
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// PullSecretUse is with which copy of the pull secret a container's image is pulled.
type PullSecretUse struct {
	// Name of the copy: that of the source, or one of its own.
	Name string
	// Version of the source that it was copied from; "" if unknown, or there was none.
	Version string
}

// pullSecretOf returns what a container's image is pulled with.
func (in Inputs) pullSecretOf(container string) PullSecretUse {
	if use, ok := in.PullSecrets[container]; ok {
		return use
	}
	return PullSecretUse{Name: in.Config.PullSecretName}
}

// PullSecretVersion tells versions of the source apart, for this instance alone. It is
// made of what the API server counts, and not of the content, which must not be guessed
// from it.
func (in Inputs) PullSecretVersion(source *corev1.Secret) string {
	return hex.EncodeToString(in.secret("pull-secret", string(source.UID), source.ResourceVersion))[:12]
}

// maxPullSecret leaves room for a version in the 253 characters of a name.
const maxPullSecret = 240

// OwnPullSecretName is that of a copy which nobody else can have made: the version rests
// on the UID of the instance.
func OwnPullSecretName(name, version string) string {
	return strings.TrimRight(name[:min(len(name), maxPullSecret)], "-.") + "-" + version
}

// noteOf writes a use down, and notedUse reads it: what names another secret than the
// configured one, or a copy of it, was not written by us or is out of date.
func noteOf(use PullSecretUse) string { return use.Name + "/" + use.Version }

func ParsePullSecretUse(noted, configured string) PullSecretUse {
	name, version, _ := strings.Cut(noted, "/")
	if version == "" || name != configured && name != OwnPullSecretName(configured, version) {
		return PullSecretUse{Name: configured}
	}
	return PullSecretUse{Name: name, Version: version}
}

// PullSecret copies the data alone: no labels or owner references of the source.
func PullSecret(in Inputs, source *corev1.Secret, name string) *corev1.Secret {
	copied := &corev1.Secret{
		ObjectMeta: in.meta(name, "pull-secret"),
		Type:       source.Type,
		Data:       source.Data,
	}
	OwnershipLabels.For(in.UID, nil).SetOn(copied)
	return copied
}
