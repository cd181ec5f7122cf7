package expose

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/proxy"
)

// labelManagedBy labels the objects of this program. Other objects of the same name are not changed.
const (
	labelName      = "app.kubernetes.io/name"
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "berg-tunnel"
)

const (
	tlsFolder = "/etc/berg-tunnel/tls"
	// user is the user and group of the proxy.
	user = 65532
	// peerGrace is how long the pod waits for this machine, which may sleep. Afterwards it ends, and is made again.
	peerGrace = "15m"
)

func meta(o Options) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name,
		Labels: map[string]string{labelName: o.Name, labelManagedBy: managedBy},
	}
}

// owned is the metadata of objects that are deleted with a pod.
func owned(o Options, pod *corev1.Pod) metav1.ObjectMeta {
	m := meta(o)
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
	return m
}

// clientPod runs the client proxy, unprivileged, as Pod Security restricted asks for.
func clientPod(o Options) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: meta(o),
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: ptr.To(false),
			EnableServiceLinks:           ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](user), RunAsGroup: ptr.To[int64](user), FSGroup: ptr.To[int64](user),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				// Ports below 1024, too.
				Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}},
			},
			Containers: []corev1.Container{{
				Name:    "client-proxy",
				Image:   o.Image,
				Command: []string{"/berg-tunnel"},
				Args:    []string{"client", "--tls-dir=" + tlsFolder, "--peer-grace=" + peerGrace},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(proxy.DefaultControlPort)}},
					PeriodSeconds: 1,
				},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "tls", MountPath: tlsFolder, ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: o.Name, DefaultMode: ptr.To[int32](0o440)},
			}}},
		},
	}
}

// clientSecret has the certificate of the client proxy. The other ones stay in the memory of this process.
func clientSecret(o Options, pod *corev1.Pod, authority []byte, pair pki.Pair) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: owned(o, pod),
		Data: map[string][]byte{
			pki.AuthorityFile: authority, pki.CertificateFile: pair.Certificate, pki.KeyFile: pair.Key,
		},
	}
}

// service gives the pod its name. It is headless: it leads to every port that the client proxy listens at.
func service(o Options, pod *corev1.Pod) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: owned(o, pod),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{labelName: o.Name, labelManagedBy: managedBy},
		},
	}
	for _, p := range o.Ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "port-" + strconv.Itoa(int(p.InCluster)), Port: p.InCluster, TargetPort: intstr.FromInt32(p.InCluster)})
	}
	return s
}
