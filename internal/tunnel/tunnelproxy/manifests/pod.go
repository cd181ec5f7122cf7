package manifests

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
	"github.com/bergctf/berg-operator/internal/tunnel/proxypod"
)

const (
	// ClientContainer is the name of the client proxy's container.
	ClientContainer = "client-proxy"
	// ServerContainer is the name of the server proxy's container.
	ServerContainer = "server-proxy"
)

// RunsOwnImage reports whether a container was made to run the program of the operator's own image.
func RunsOwnImage(c corev1.Container) bool {
	return slices.Equal(c.Command, []string{proxypod.Program})
}

// ClientPod returns the pod of the client proxy. It is never restarted: when it ends, the pair ends.
func ClientPod(in Inputs) *corev1.Pod {
	cfg := in.Config
	name := in.object(pairobjects.PartClient)
	pod := proxypod.NewClient(in.meta(in.Namespace, name, tunnelv1.RoleClient), name, corev1.Container{
		Name:    ClientContainer,
		Image:   in.Image,
		Command: in.command(),
		Args: []string{
			"client", "--tls-dir=" + proxypod.TLSFolder,
			"--client-control-port=" + digits(cfg.ControlPort), "--client-data-port=" + digits(cfg.DataPort),
			"--max-tunnels=" + strconv.Itoa(cfg.Tunnels), "--max-streams=" + strconv.Itoa(cfg.Streams),
			"--max-tunnel-streams=" + strconv.Itoa(cfg.TunnelStreams), "--idle-timeout=" + cfg.IdleTimeout.String(),
		},
		Ports: []corev1.ContainerPort{
			{Name: "control", ContainerPort: cfg.ControlPort, Protocol: corev1.ProtocolTCP},
			{Name: "data", ContainerPort: cfg.DataPort, Protocol: corev1.ProtocolTCP},
		},
	}, cfg.ControlPort, 5)
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
	args := append([]string{"server", "--tls-dir=" + proxypod.TLSFolder, "--server-control-address=$(HOST_IP)"}, ServerArgs(in)...)
	name := in.object(pairobjects.PartServer)
	pod := proxypod.New(in.meta(in.OperatorNamespace, name, tunnelv1.RoleServer), name, corev1.Container{
		Name:    ServerContainer,
		Image:   in.Image,
		Command: in.command(),
		Args:    args,
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

// command names the program in the operator's own image; other images have it as their entrypoint.
func (in Inputs) command() []string {
	if in.OwnImage {
		return []string{proxypod.Program}
	}
	return nil
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

// ReadHostPorts returns the ports of its node that a client proxy has; zero if it has none.
func ReadHostPorts(pod *corev1.Pod) HostPorts {
	control, data := pairobjects.Ports(pod)
	return HostPorts{Control: control.HostPort, Data: data.HostPort}
}
