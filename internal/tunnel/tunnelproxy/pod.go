package tunnelproxy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

const (
	// tlsFolder is where a pod has its certificates.
	tlsFolder = "/etc/berg-tunnel/tls"
	// drainSeconds is how long a pod may take to end: the proxy drains for 5 s.
	drainSeconds = 15
	// clientContainer and serverContainer are the names of the containers.
	clientContainer, serverContainer = "client-proxy", "server-proxy"
	// nobody is the user that proxies run as: files of the Secret are readable by its group.
	nobody = 65532
)

// clientPod is the client proxy. It is never started anew: with it the pair ends.
func clientPod(in Inputs) *corev1.Pod {
	cfg := in.Config
	pod := basePod(in, in.Namespace, partClient, tunnelv1.RoleClient, corev1.Container{
		Name:  clientContainer,
		Image: in.Image,
		Args: []string{
			"client", "--tls-dir=" + tlsFolder,
			"--client-control-port=" + digits(cfg.ControlPort), "--client-data-port=" + digits(cfg.DataPort),
			"--max-tunnels=" + strconv.Itoa(cfg.Tunnels), "--max-streams=" + strconv.Itoa(cfg.Streams),
			"--max-tunnel-streams=" + strconv.Itoa(cfg.TunnelStreams), "--idle-timeout=" + cfg.IdleTimeout.String(),
		},
		Ports: []corev1.ContainerPort{
			{Name: "control", ContainerPort: cfg.ControlPort, Protocol: corev1.ProtocolTCP},
			{Name: "data", ContainerPort: cfg.DataPort, Protocol: corev1.ProtocolTCP},
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(cfg.ControlPort)}},
			PeriodSeconds: 5,
		},
	})
	// Tunnels may have any port of the pod, low ones too, without a right of their own.
	pod.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
	if in.PullSecret {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: in.object(partPull)}}
	}
	if cfg.Publish == config.PublishHostPort {
		ports := pod.Spec.Containers[0].Ports
		ports[0].HostIP, ports[0].HostPort = "127.0.0.1", in.HostPorts.Control
		ports[1].HostIP, ports[1].HostPort = "127.0.0.1", in.HostPorts.Data
	}
	pod.Spec.Affinity = affinity(in)
	return pod
}

// serverPod is the server proxy, in the network of its node: the loopback of the node is its own.
func serverPod(in Inputs) *corev1.Pod {
	args := append([]string{"server", "--tls-dir=" + tlsFolder, "--server-control-address=$(HOST_IP)"}, serverArgs(in)...)
	pod := basePod(in, in.OperatorNamespace, partServer, tunnelv1.RoleServer, corev1.Container{
		Name:  serverContainer,
		Image: in.Image,
		Args:  args,
		Env: []corev1.EnvVar{{Name: "HOST_IP", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.hostIP"},
		}}},
	})
	pod.Spec.NodeName = in.Host
	pod.Spec.HostNetwork = true
	pod.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	// Its servers are on that node, whatever the node is kept from.
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if in.Config.RegistrySecret != "" {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: in.Config.RegistrySecret}}
	}
	return pod
}

// serverArgs are what every server proxy is told, whatever it runs in.
func serverArgs(in Inputs) []string {
	cfg := in.Config
	return []string{
		"--server-control-port=0",
		"--client-control-address=" + in.Client.Address, "--client-control-port=" + digits(in.Client.Control),
		"--client-data-port=" + digits(in.Client.Data),
		"--allowed-servers=" + joined(cfg.AllowedServers), "--denied-servers=" + joined(cfg.DeniedServers),
		"--denied-server-ports=" + ranges(cfg.DeniedServerPorts),
		"--max-streams=" + strconv.Itoa(cfg.Streams),
	}
}

func basePod(in Inputs, namespace, part, role string, c corev1.Container) *corev1.Pod {
	c.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	c.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "tls", MountPath: tlsFolder, ReadOnly: true}}
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	return &corev1.Pod{
		ObjectMeta: in.meta(namespace, in.object(part), role),
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](drainSeconds),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](nobody), RunAsGroup: ptr.To[int64](nobody), FSGroup: ptr.To[int64](nobody),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{c},
			Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: in.object(part), DefaultMode: ptr.To[int32](0o440)},
			}}},
		},
	}
}

// affinity has the scheduler choose a node that can run the client proxy: one of the processor
// that its image was built for, and where it is reached at the loopback of the host, the host. A
// node's name in the pod would pass the scheduler by.
func affinity(in Inputs) *corev1.Affinity {
	var term corev1.NodeSelectorTerm
	if in.Architecture != "" {
		term.MatchExpressions = []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{in.Architecture}},
		}
	}
	if in.Config.Publish == config.PublishHostPort && in.Host != "" {
		term.MatchFields = []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{in.Host}},
		}
	}
	// A term without anything matches no node.
	if term.MatchExpressions == nil && term.MatchFields == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{term},
	}}}
}

func digits(number int32) string { return strconv.FormatInt(int64(number), 10) }

func joined(networks []netip.Prefix) string {
	all := make([]string, len(networks))
	for i, n := range networks {
		all[i] = n.String()
	}
	return strings.Join(all, ",")
}

func ranges(ports []config.PortRange) string {
	all := make([]string, len(ports))
	for i, p := range ports {
		all[i] = digits(p.First)
		if p.Last != p.First {
			all[i] = fmt.Sprintf("%d-%d", p.First, p.Last)
		}
	}
	return strings.Join(all, ",")
}
