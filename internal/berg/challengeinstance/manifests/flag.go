package manifests

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/flagexec"
)

const (
	flagContentName    = "flag-content"
	flagExecutableName = "flag-executable"

	defaultContentMode    = 0o444
	defaultGroupMode      = 0o440
	defaultExecutableMode = 0o111
)

// flagConfigMaps returns one ConfigMap for each form of flag file in use. Containers share it.
func flagConfigMaps(in Inputs) ([]*corev1.ConfigMap, error) {
	var content, executable bool
	for _, c := range in.Challenge.Containers {
		if f := c.DynamicFlag; f != nil {
			content = content || f.Content != nil
			executable = executable || f.Executable != nil
		}
	}
	var out []*corev1.ConfigMap
	if content {
		out = append(out, &corev1.ConfigMap{
			ObjectMeta: in.meta(flagContentName, flagContentName),
			BinaryData: map[string][]byte{"content": []byte(in.Flag + "\n")},
		})
	}
	if executable {
		program, err := flagexec.Build(in.Flag, in.secret("executable"))
		if err != nil {
			return nil, fmt.Errorf("spec.flag: %w", err)
		}
		out = append(out, &corev1.ConfigMap{
			ObjectMeta: in.meta(flagExecutableName, flagExecutableName),
			BinaryData: map[string][]byte{"executable": program},
		})
	}
	return out, nil
}

// flagMount returns the volume and mount of a container's flag file, nil if it has none.
func flagMount(in Inputs, c bergv1.Container) (*corev1.Volume, *corev1.VolumeMount) {
	if c.DynamicFlag == nil {
		return nil, nil
	}
	var file *bergv1.FlagFile
	var volume, configMap string
	var mode int32
	switch {
	case c.DynamicFlag.Content != nil:
		file, volume, configMap, mode = c.DynamicFlag.Content, "content", flagContentName, defaultContentMode
	case c.DynamicFlag.Executable != nil:
		file, volume, configMap, mode = c.DynamicFlag.Executable, "executable", flagExecutableName, defaultExecutableMode
	default:
		return nil, nil
	}
	if file.Group != nil {
		mode = defaultGroupMode
	}
	if file.Mode != nil {
		mode = *file.Mode
	}
	mountPath := in.path(c.Hostname, *file)
	filename := path.Base(mountPath)
	return &corev1.Volume{
			Name: volume,
			VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: configMap},
				Items:                []corev1.KeyToPath{{Key: volume, Path: filename, Mode: ptr.To(mode)}},
			}},
		}, &corev1.VolumeMount{
			Name:      volume,
			MountPath: mountPath,
			SubPath:   filename,
			ReadOnly:  true,
		}
}

// flagGroup returns the group of a container's flag file, nil if it has none. Kubernetes gives this group to all volumes of
// the pod that can have one, and makes the container's program a member.
func flagGroup(c bergv1.Container) *int64 {
	if c.DynamicFlag == nil || c.DynamicFlag.Content == nil {
		return nil
	}
	return c.DynamicFlag.Content.Group
}

// NeedsFlag reports whether any container uses the flag of the instance.
func NeedsFlag(containers []bergv1.Container) bool {
	for _, c := range containers {
		if c.DynamicFlag != nil {
			return true
		}
	}
	return false
}
