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
	flagVariableName   = "flag-variable"

	// The keys of these ConfigMaps. keyPrepared alone stands for a flag that is not known yet.
	keyContent    = "content"
	keyExecutable = "executable"
	keyVariable   = "variable"
	keyPrepared   = "prepared"
	// gateName is the folder of a flag file in the volume of a prepared instance.
	gateName = "flag"

	defaultContentMode    = 0o444
	defaultGroupMode      = 0o440
	defaultExecutableMode = 0o111
)

// flagConfigMaps returns one ConfigMap for each form of flag in use. Containers share it. A prepared instance has them before
// it has a flag: then they have keyPrepared instead.
func flagConfigMaps(in Inputs) ([]*corev1.ConfigMap, error) {
	var variable, content, executable bool
	for _, c := range in.Challenge.Containers {
		if f := c.DynamicFlag; f != nil {
			variable = variable || f.Env != nil && in.Prepared
			content = content || f.Content != nil
			executable = executable || f.Executable != nil
		}
	}
	var out []*corev1.ConfigMap
	add := func(name, key string, value []byte) {
		data := map[string][]byte{key: value}
		if in.Unclaimed {
			data = map[string][]byte{keyPrepared: {}}
		}
		out = append(out, &corev1.ConfigMap{ObjectMeta: in.meta(name, name), BinaryData: data})
	}
	if variable {
		add(flagVariableName, keyVariable, nil)
		if last := out[len(out)-1]; !in.Unclaimed { // a variable is read from data only
			last.BinaryData, last.Data = nil, map[string]string{keyVariable: in.Flag}
		}
	}
	if content {
		add(flagContentName, keyContent, []byte(in.Flag+"\n"))
	}
	if executable {
		program, err := flagProgram(in)
		if err != nil {
			return nil, fmt.Errorf("spec.flag: %w", err)
		}
		add(flagExecutableName, keyExecutable, program)
	}
	return out, nil
}

// The same flag and seed give the same program, so a repair writes the same bytes.
func flagProgram(in Inputs) ([]byte, error) {
	if in.Unclaimed {
		return nil, nil
	}
	return flagexec.Build(in.Flag, in.secret("executable"))
}

// flagVariable refers to the flag of a prepared instance. The kubelet creates the container when the key exists.
func flagVariable(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: flagVariableName}, Key: keyVariable,
	}}}
}

// WaitsForFlag reports whether a container of a prepared instance starts only when the flag is known.
func WaitsForFlag(c bergv1.Container) bool {
	return c.DynamicFlag != nil && c.DynamicFlag.Late != bergv1.LateFile
}

// flagMount returns the volume and mount of a container's flag file, nil if it has none. The path has the entropy of the instance
// where the author asks for it.
func flagMount(in Inputs, c bergv1.Container) (*corev1.Volume, *corev1.VolumeMount) {
	if c.DynamicFlag == nil {
		return nil, nil
	}
	var file *bergv1.FlagFile
	var volume, configMap string
	var mode int32
	switch {
	case c.DynamicFlag.Content != nil:
		file, volume, configMap, mode = c.DynamicFlag.Content, keyContent, flagContentName, defaultContentMode
	case c.DynamicFlag.Executable != nil:
		file, volume, configMap, mode = c.DynamicFlag.Executable, keyExecutable, flagExecutableName, defaultExecutableMode
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
	source := &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap},
		Items:                []corev1.KeyToPath{{Key: volume, Path: filename, Mode: ptr.To(mode)}},
	}
	mount := &corev1.VolumeMount{Name: volume, MountPath: mountPath, SubPath: filename, ReadOnly: true}
	switch {
	case c.DynamicFlag.Late == bergv1.LateFile:
		// The kubelet updates the files of a volume, but no file that was mounted alone.
		source.Optional = ptr.To(true)
		mount.MountPath, mount.SubPath = path.Dir(mountPath), ""
	case in.Prepared:
		// Before the flag is known, the folder of the file is a file itself. So the kubelet cannot create the container, and
		// tries again. Without that file the kubelet would create a folder in place of the missing flag.
		source.Optional = ptr.To(true)
		source.Items[0].Path = path.Join(gateName, filename)
		source.Items = append(source.Items, corev1.KeyToPath{Key: keyPrepared, Path: gateName})
		mount.SubPath = source.Items[0].Path
	}
	return &corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{ConfigMap: source}}, mount
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
