// Package proxypod makes the pods of proxies, for the operator and for berg-tunnel expose.
package proxypod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const (
	// TLSFolder is where a pod has its certificates.
	TLSFolder = "/etc/berg-tunnel/tls"
	// Program is the path of the program in the operator's own image.
	Program = "/berg-tunnel"
	// DrainSeconds is how long a proxy may take to end: it drains for 5 s.
	DrainSeconds = 15
	// user is the user and group that proxies run as. The group may read the files of the Secret.
	user = 65532
)

// New returns a pod that runs a proxy with the certificates of a Secret, unprivileged, as Pod Security restricted asks for. It is
// never restarted.
func New(meta metav1.ObjectMeta, secret string, c corev1.Container) *corev1.Pod {
	c.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	c.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "tls", MountPath: TLSFolder, ReadOnly: true}}
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](DrainSeconds),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](user), RunAsGroup: ptr.To[int64](user), FSGroup: ptr.To[int64](user),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{c},
			Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: ptr.To[int32](0o440)},
			}}},
		},
	}
}

// NewClient returns a pod that runs a client proxy, which is ready when it listens at its control port.
func NewClient(meta metav1.ObjectMeta, secret string, c corev1.Container, controlPort, probeSeconds int32) *corev1.Pod {
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(controlPort)}},
		PeriodSeconds: probeSeconds,
	}
	pod := New(meta, secret, c)
	// A tunnel may have any port of the pod, also below 1024, without a capability.
	pod.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
	return pod
}
