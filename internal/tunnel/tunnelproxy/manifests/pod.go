package manifests

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
)

const (
	// tlsFolder is where a pod has its certificates.
	tlsFolder = "/etc/berg-tunnel/tls"
	// DrainSeconds is how long a proxy may take to end: it drains for 5 s.
	DrainSeconds = 15
	// ClientContainer is the name of the client proxy's container.
	ClientContainer = "client-proxy"
	// ServerContainer is the name of the server proxy's container.
	ServerContainer = "server-proxy"
	// user is the user and group that proxies run as. The group may read the files of the Secret.
	user = 65532
	// ownProgram is where the operator's own image has the program.
	ownProgram = "/berg-tunnel"
)

// RunsOwnImage reports whether a container was made to run the program of the operator's own image.
func RunsOwnImage(c corev1.Container) bool { return slices.Equal(c.Command, []string{ownProgram}) }

// ClientPod returns the pod of the client proxy. It is never restarted: when it ends, the pair ends.
func ClientPod(in Inputs) *corev1.Pod {
	cfg := in.Config
	pod := basePod(in, in.Namespace, pairobjects.PartClient, tunnelv1.RoleClient, corev1.Container{
		Name:  ClientContainer,
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
	// A tunnel may have any port of the pod, also below 1024, without a capability.
	pod.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
	if in.PullSecret {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: in.object(pairobjects.PartPull)}}
	}
	if cfg.Publish == config.PublishHostPort {
		ports := pod.Spec.Containers[0].Ports
		ports[0].HostIP, ports[0].HostPort = "127.0.0.1", in.HostPorts.Control
		ports[1].HostIP, ports[1].HostPort = "127.0.0.1", in.HostPorts.Data
	}
	pod.Spec.Affinity = affinity(in)
	return pod
}

// ServerPod returns the pod of the server proxy. It uses the network of its node, to reach the node's loopback.
func ServerPod(in Inputs) *corev1.Pod {
	args := append([]string{"server", "--tls-dir=" + tlsFolder, "--server-control-address=$(HOST_IP)"}, ServerArgs(in)...)
	pod := basePod(in, in.OperatorNamespace, pairobjects.PartServer, tunnelv1.RoleServer, corev1.Container{
		Name:  ServerContainer,
		Image: in.Image,
		Args:  args,
		Env: []corev1.EnvVar{{Name: "HOST_IP", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.hostIP"},
		}}},
	})
	pod.Spec.NodeName = in.Host
	pod.Spec.HostNetwork = true
	pod.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	// The servers are on that node, so its taints do not matter.
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if in.Config.PullSecret != "" {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: in.Config.PullSecret}}
	}
	return pod
}

// ServerArgs returns the arguments that every server proxy has, in a pod or as a process.
func ServerArgs(in Inputs) []string {
	cfg := in.Config
	return []string{
		"--server-control-port=0",
		"--client-control-address=" + in.Client.Address, "--client-control-port=" + digits(in.Client.Control),
		"--client-data-port=" + digits(in.Client.Data),
		"--allowed-servers=" + joined(cfg.Servers.Allowed), "--denied-servers=" + joined(cfg.Servers.Denied),
		"--denied-server-ports=" + joined(cfg.Servers.DeniedPorts),
		"--max-streams=" + strconv.Itoa(cfg.Streams),
	}
}

func basePod(in Inputs, namespace, part, role string, c corev1.Container) *corev1.Pod {
	c.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if in.OwnImage {
		c.Command = []string{ownProgram}
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
			TerminationGracePeriodSeconds: ptr.To[int64](DrainSeconds),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](user), RunAsGroup: ptr.To[int64](user), FSGroup: ptr.To[int64](user),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{c},
			Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: in.object(part), DefaultMode: ptr.To[int32](0o440)},
			}}},
		},
	}
}

// affinity limits the scheduler to nodes that can run the client proxy: nodes with the CPU architecture of its image,
// and with PublishHostPort the host alone. spec.nodeName would bypass the scheduler, and its check of ports.
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
	// An empty term matches no node.
	if term.MatchExpressions == nil && term.MatchFields == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{term},
	}}}
}

func digits(number int32) string { return strconv.FormatInt(int64(number), 10) }

// joined writes values as the flags of a proxy read them.
func joined[T fmt.Stringer](values []T) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = v.String()
	}
	return strings.Join(all, ",")
}

// PortsOfPod returns the ports at which a client proxy listens for its server proxy.
func PortsOfPod(pod *corev1.Pod) (control, data int32) {
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			switch port.Name {
			case "control":
				control = port.ContainerPort
			case "data":
				data = port.ContainerPort
			}
		}
	}
	return control, data
}

// ReadHostPorts returns the ports of its node that a client proxy has; zero if it has none.
func ReadHostPorts(pod *corev1.Pod) (ports HostPorts) {
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			switch port.Name {
			case "control":
				ports.Control = port.HostPort
			case "data":
				ports.Data = port.HostPort
			}
		}
	}
	return ports
}
