package manifests

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/config"
)

// AnnotationSafeToEvict says whether the cluster autoscaler may evict a pod: not while a player uses it.
const AnnotationSafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// A change of anything in the template restarts the pod, so all of it comes from the snapshot and from values that stay for the
// life of the instance.
func deployment(in Inputs, c bergv1.Container, endpoints []Endpoint) *appsv1.Deployment {
	labels := in.podLabels(c.Hostname)
	annotations := map[string]string{
		"kubernetes.io/egress-bandwidth":  cmp.Or(c.EgressBandwidth, in.Config.EgressBandwidth),
		"kubernetes.io/ingress-bandwidth": cmp.Or(c.IngressBandwidth, in.Config.IngressBandwidth),
		// The ID distinguishes these pods from pods of the owner's previous instance, which had a namespace of the same
		// name.
		bergv1.LabelInstanceID: in.InstanceID,
	}
	if !in.Prepared {
		annotations[AnnotationSafeToEvict] = "false"
	}
	if digest := in.Images[c.Hostname]; digest != "" {
		annotations[bergv1.AnnotationImage] = digest
	}
	meta := in.meta(c.Hostname, "challenge-deployment")
	if use := in.pullSecretFor(c.Hostname); use.Version != "" {
		meta.Annotations = map[string]string{bergv1.AnnotationPullSecret: formatPullSecretUse(use)}
	}
	return &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			// Two pods of one container at the same time would be two challenges: a player could reach either.
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      in.templateLabels(labels),
					Annotations: annotations,
				},
				Spec: podSpec(in, c, endpoints),
			},
		},
	}
}

// podSpec gives pods no token, no variables of Services and no grace period. A change here restarts the pods of instances that
// are rolled out.
func podSpec(in Inputs, c bergv1.Container, endpoints []Endpoint) corev1.PodSpec {
	container := corev1.Container{
		Name:            c.Hostname,
		Image:           c.Image,
		Command:         literals(c.Command),
		Args:            literals(c.Args),
		ImagePullPolicy: ImagePullPolicy(in.Config.ImagePullPolicy, c),
		Env:             environment(in, c, endpoints),
		Ports:           containerPorts(c),
		Resources:       resources(in.Config, c),
		ReadinessProbe:  c.ReadinessProbe,
		LivenessProbe:   c.LivenessProbe,
		StartupProbe:    startupProbe(c),
		SecurityContext: securityContext(in.Config, c),
	}
	class := cmp.Or(c.RuntimeClassName, in.Config.RuntimeClassName)
	userNamespace := in.Config.UserNamespaces.Use(class) || c.Sandbox == bergv1.SandboxNested
	spec := corev1.PodSpec{
		Hostname:                      c.Hostname,
		EnableServiceLinks:            ptr.To(false),
		AutomountServiceAccountToken:  ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](0),
		SecurityContext: &corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: in.Config.SeccompProfile},
			FSGroup:        flagGroup(c),
			Sysctls:        sysctls(userNamespace),
		},
	}
	if userNamespace {
		spec.HostUsers = ptr.To(false)
	}
	if volume, mount := flagMount(in, c); volume != nil {
		spec.Volumes = []corev1.Volume{*volume}
		container.VolumeMounts = []corev1.VolumeMount{*mount}
	}
	// The limit of memory decides about the default size, because files in /dev/shm count against it.
	if size := sharedMemory(c, container.Resources.Limits[corev1.ResourceMemory]); size != nil {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: sharedMemoryName, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: size},
		}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: sharedMemoryName, MountPath: "/dev/shm"})
	}
	if class != "" {
		spec.RuntimeClassName = ptr.To(class)
	}
	if name := in.pullSecretFor(c.Hostname).Name; name != "" {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: name}}
	}
	if c.DynamicFlag != nil && c.DynamicFlag.Executable != nil {
		spec.NodeSelector = map[string]string{corev1.LabelArchStable: "amd64"}
	}
	spec.Containers = []corev1.Container{container}
	return spec
}

// ImagePullPolicy is the author's, unless the administrator lets nodes pull nothing.
func ImagePullPolicy(configured corev1.PullPolicy, c bergv1.Container) corev1.PullPolicy {
	if configured == corev1.PullNever {
		return configured
	}
	return cmp.Or(corev1.PullPolicy(c.ImagePullPolicy), configured)
}

// sysctls let every user listen on ports below 1024 and use ping, as container engines do. Both are safe: they concern
// the network of the pod alone. A group that a user namespace does not map would be refused.
func sysctls(userNamespaces bool) []corev1.Sysctl {
	groups := "0 2147483647"
	if userNamespaces {
		groups = "0 65535"
	}
	return []corev1.Sysctl{
		{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"},
		{Name: "net.ipv4.ping_group_range", Value: groups},
	}
}

const sharedMemoryName = "shared-memory"

// runtimeSharedMemory is the default size of /dev/shm in container runtimes.
var runtimeSharedMemory = resource.MustParse("64Mi")

// sharedMemory returns the size of /dev/shm, nil for the default of the runtime. By default it is half of the memory, as
// Linux has it for such file systems, and at least the default of the runtime. Its files count as memory of the container.
func sharedMemory(c bergv1.Container, memory resource.Quantity) *resource.Quantity {
	if c.SharedMemory != nil {
		return ptr.To(rules.Quantity(*c.SharedMemory))
	}
	half := resource.NewQuantity(memory.Value()/2, resource.BinarySI)
	if half.Cmp(runtimeSharedMemory) <= 0 {
		return nil
	}
	return half
}

// environment lists the author's variables, the endpoints, the namespace and the flag. A
// later variable replaces an earlier one of the same name.
func environment(in Inputs, c bergv1.Container, endpoints []Endpoint) []corev1.EnvVar {
	var env []corev1.EnvVar
	set := func(name, value string) {
		env = slices.DeleteFunc(env, func(e corev1.EnvVar) bool { return e.Name == name })
		env = append(env, corev1.EnvVar{Name: name, Value: value})
	}
	for _, name := range sortedKeys(c.Environment) {
		value, _ := c.Environment[name].Text() // Validate has read it
		set(name, rules.Literal(value))
	}
	for _, e := range endpoints {
		if e.Variable != "" {
			set(e.Variable, e.Address)
		}
	}
	set("CHALLENGE_NAMESPACE", in.Namespace())
	if f := c.DynamicFlag; f != nil && f.Env != nil {
		set(f.Env.Name, rules.Literal(in.Flag))
		if in.Prepared {
			env[len(env)-1] = flagVariable(f.Env.Name)
		}
	}
	return env
}

// literals returns words that reach the program as the author wrote them.
func literals(words []string) (out []string) {
	for _, word := range words {
		out = append(out, rules.Literal(word))
	}
	return out
}

func containerPorts(c bergv1.Container) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, p := range c.Ports {
		out = append(out, corev1.ContainerPort{ContainerPort: p.Port, Protocol: p.Transport()})
	}
	return out
}

// resources fills in the amounts that the author left out. A request never exceeds its limit: where the author set only one
// of the two, the default of the other is adapted. All amounts are written, so that the API server adds none and the object that
// is read back equals the plan.
func resources(defaults config.Challenge, c bergv1.Container) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	fill := func(name corev1.ResourceName, request, limit *bergv1.Amount, defaultRequest, defaultLimit resource.Quantity) {
		r, l := defaultRequest.DeepCopy(), defaultLimit.DeepCopy()
		if request != nil {
			r = rules.Quantity(*request)
		}
		if limit != nil {
			l = rules.Quantity(*limit)
		}
		if r.Cmp(l) > 0 {
			if limit != nil {
				r = l
			} else {
				l = r
			}
		}
		out.Requests[name], out.Limits[name] = r, l
	}
	requests, limits := rules.AuthorResources(c)
	fill(corev1.ResourceCPU, requests.CPU, limits.CPU, defaults.CPURequest, defaults.CPULimit)
	memoryLimit := defaults.MemoryLimit
	if c.SharedMemory != nil { // it counts to the limit
		if shared := rules.Quantity(*c.SharedMemory); shared.Cmp(memoryLimit) > 0 {
			memoryLimit = shared
		}
	}
	fill(corev1.ResourceMemory, requests.Memory, limits.Memory, defaults.MemoryRequest, memoryLimit)
	// A Challenge cannot set the disk space.
	request, limit := defaults.EphemeralStorageRequest, defaults.EphemeralStorageLimit
	if !limit.IsZero() {
		out.Limits[corev1.ResourceEphemeralStorage] = limit.DeepCopy()
	}
	// Without a request, even of zero, Kubernetes reserves the whole limit.
	if !request.IsZero() || !limit.IsZero() {
		out.Requests[corev1.ResourceEphemeralStorage] = request.DeepCopy()
	}
	return out
}

// securityContext lets a program gain privileges within its container, which is the default of Kubernetes, too. The pod's
// capabilities, its profile and its user namespace stay the limit.
func securityContext(cfg config.Challenge, c bergv1.Container) *corev1.SecurityContext {
	var capabilities corev1.Capabilities
	for _, added := range c.AdditionalCapabilities {
		capabilities.Add = append(capabilities.Add, corev1.Capability(rules.Capability(added)))
	}
	// Without DAC_OVERRIDE the mode of the program applies to root too: root can execute the
	// program and not read it. The author can add the capability again.
	const override = corev1.Capability("DAC_OVERRIDE")
	if c.DynamicFlag != nil && c.DynamicFlag.Executable != nil && !slices.Contains(capabilities.Add, override) {
		capabilities.Drop = []corev1.Capability{override}
	}
	context := &corev1.SecurityContext{
		Privileged:               ptr.To(false),
		AllowPrivilegeEscalation: ptr.To(true),
		Capabilities:             &capabilities,
	}
	if c.Sandbox == bergv1.SandboxNested {
		context.ProcMount = ptr.To(corev1.UnmaskedProcMount) // the kernel lets a namespace mount /proc only if nothing of its own is hidden
		context.SeccompProfile = nestedProfile(cfg.NestedSeccompProfile)
	}
	return context
}

// nestedProfile returns the seccomp profile with which programs may create namespaces.
func nestedProfile(name string) *corev1.SeccompProfile {
	if name == config.Unconfined {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	}
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &name}
}
