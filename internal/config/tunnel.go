package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/allowlist"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Tunnel configures container networks and their tunnels. The help of each setting describes its
// field.
type Tunnel struct {
	Backend               TunnelBackend
	HostNode              string // "": the node of the client proxy
	Publish               TunnelPublish
	HostPorts             allowlist.Ports // used if Publish is HostPort
	ControlPort, DataPort int32           // ports of client proxies

	Image                string // "": an image is built for Registry
	Registry, Repository string
	RegistrySecret       string // in the operator's namespace, to push images and for base images; "": none
	PullSecret           string // in the operator's namespace, copied to each network; "": none
	RegistryCAFile       string // "": the authorities of the operator's image
	RegistryInsecure     bool   // HTTP
	BaseImage            string
	Binary               string

	Servers                         allowlist.Rules
	Tunnels, Streams, TunnelStreams int           // the first two of a pair of proxies, the last of one tunnel
	IdleTimeout                     time.Duration // 0: no limit
	PrepareAttempts                 int
	StartTimeout, CallTimeout       time.Duration
	CertificateLifetime             time.Duration // renewed after two thirds
}

// TunnelBackend is how server proxies run.
type TunnelBackend string

// The backends.
const (
	// BackendHostPod is a pod in the node's network, in the operator's namespace.
	BackendHostPod TunnelBackend = "HostPod"
	// BackendLocalProcess is a process on the machine that the operator runs on.
	BackendLocalProcess TunnelBackend = "LocalProcess"
)

// TunnelPublish is how server proxies reach client proxies.
type TunnelPublish string

// The ways to publish.
const (
	// PublishPodIP is the pod's own address.
	PublishPodIP TunnelPublish = "PodIP"
	// PublishNodePort is a port of every node.
	PublishNodePort TunnelPublish = "NodePort"
	// PublishHostPort is a port of the loopback of the node that runs both proxies.
	PublishHostPort TunnelPublish = "HostPort"
)

// Section returns the settings, which are read into t.
func (t *Tunnel) Section() settings.Section {
	return settings.Section{
		Title:    "Container networks and tunnels (usvc-dev.developer.microsoft.com)",
		Check:    t.check,
		Warnings: t.warnings,
		Settings: []settings.Setting{
			settings.New("TUNNEL_BACKEND", string(BackendHostPod), settings.Enum(&t.Backend, BackendHostPod, BackendLocalProcess), "How server proxies run: HostPod, a pod in the network of a node, which needs its own rights (config/tunnel/host), or LocalProcess, a process on the machine of the operator."),
			settings.New("TUNNEL_HOST_NODE", "", settings.Optional(settings.Name(&t.HostNode, validation.IsDNS1123Subdomain)), "Node on whose loopback the servers of tunnels listen, unless the annotation usvc-dev.developer.microsoft.com/host-node names another one. Empty: the node of the client proxy."),
			settings.New("TUNNEL_PUBLISH", string(PublishPodIP), settings.Enum(&t.Publish, PublishPodIP, PublishNodePort, PublishHostPort), "How a server proxy reaches its client proxy: PodIP, NodePort, or HostPort on the loopback of the node that runs both."),
			settings.New("TUNNEL_HOST_PORTS", "28000-28511", parsed(&t.HostPorts, allowlist.ParseRange), "Ports of the node for TUNNEL_PUBLISH=HostPort. Each pair of proxies needs two."),
			settings.New("TUNNEL_CONTROL_PORT", "36672", settings.Port(&t.ControlPort), "Control port of client proxies."),
			settings.New("TUNNEL_DATA_PORT", "36673", settings.Port(&t.DataPort), "Port for data connections of client proxies."),
			settings.New("TUNNEL_IMAGE", "", printable(&t.Image), "Existing image with the proxy program as its entrypoint. Empty: the operator builds an image for TUNNEL_REGISTRY; without a registry, the image that the operator itself runs."),
			settings.New("TUNNEL_REGISTRY", "", printable(&t.Registry), "Registry, as registry.example.com or registry.example.com:5000, to which images of the client proxy are pushed and from which nodes pull, for base images of your own. Empty: no image is built."),
			settings.New("TUNNEL_REPOSITORY", "dcptun_developer_ms", settings.Name(&t.Repository, repository), "Repository of these images."),
			settings.New("TUNNEL_REGISTRY_SECRET", "", settings.Optional(settings.Name(&t.RegistrySecret, validation.IsDNS1123Subdomain)), "Secret of type kubernetes.io/dockerconfigjson in the operator's namespace with the credentials to push the image and to read base images. It stays there. Empty: none."),
			settings.New("TUNNEL_PULL_SECRET", "", settings.Optional(settings.Name(&t.PullSecret, validation.IsDNS1123Subdomain)), "Secret of type kubernetes.io/dockerconfigjson in the operator's namespace with which nodes pull the image. It is copied to each network, so its credentials must not push. Empty: none."),
			settings.New("TUNNEL_REGISTRY_CA_FILE", "", settings.Optional(settings.Path(&t.RegistryCAFile)), "PEM file with the certificate authorities that the registry's certificate is verified with. Empty: those of the image."),
			settings.New("TUNNEL_REGISTRY_INSECURE", "false", settings.Bool(&t.RegistryInsecure), "Whether the registry speaks HTTP."),
			settings.New("TUNNEL_BASE_IMAGE", "mcr.microsoft.com/azurelinux/base/core:3.0", settings.Name(&t.BaseImage, notEmpty), "Base image of client proxies, unless baseImage names another one."),
			settings.New("TUNNEL_BINARY", "/berg-tunnel", settings.Path(&t.Binary), "The proxy program. It is added to images, and run directly if TUNNEL_BACKEND is LocalProcess."),
			settings.New("TUNNEL_ALLOWED_SERVERS", allowlist.DefaultAllowed, parsed(&t.Servers.Allowed, allowlist.ParseNetworks), "Comma-separated addresses and address ranges of servers that tunnels may lead to, as the node sees them. A name must resolve to such an address every time. Link-local addresses and those of a cloud's metadata cannot be allowed. An IPv6 address with an IPv4 address in it, as of NAT64, must be allowed together with that one."),
			settings.New("TUNNEL_DENIED_SERVERS", "", parsed(&t.Servers.Denied, allowlist.ParseNetworks), "Comma-separated addresses and address ranges that tunnels must not lead to, even if they are allowed. The address and the name of the API server, as the operator knows them, are always denied."),
			settings.New("TUNNEL_DENIED_SERVER_PORTS", allowlist.DefaultDeniedPorts, parsed(&t.Servers.DeniedPorts, allowlist.ParsePorts), "Comma-separated ports and port ranges that tunnels must not lead to. The default holds the ports of etcd, API server, kubelet and the other components of Kubernetes, which listen on the loopback of nodes. The kubelet port of the host is always denied."),
			settings.New("TUNNEL_MAX_TUNNELS", "256", settings.Int(&t.Tunnels, 1, 256), "Maximum number of tunnels of a pair of proxies."),
			settings.New("TUNNEL_MAX_STREAMS", "10000", settings.Int(&t.Streams, 1, 1000000), "Maximum number of concurrent client connections of a pair of proxies, in all of its tunnels. Further ones are closed."),
			settings.New("TUNNEL_MAX_TUNNEL_STREAMS", "5000", settings.Int(&t.TunnelStreams, 1, 1000000), "Maximum number of concurrent client connections of one tunnel, so that it leaves some to the others."),
			settings.New("TUNNEL_IDLE_TIMEOUT", "", settings.Optional(settings.Duration(&t.IdleTimeout)), "How long a client connection may be idle in both directions before it is closed. Empty: no limit."),
			settings.New("TUNNEL_PREPARE_ATTEMPTS", "20", settings.Int(&t.PrepareAttempts, 1, 1000), "How often the operator tries to prepare a tunnel, about every two seconds. Then the tunnel stays Failed until it is changed."),
			settings.New("TUNNEL_START_TIMEOUT", "5m", settings.Duration(&t.StartTimeout), "How long a pair of proxies may take to start. Then it is Failed."),
			settings.New("TUNNEL_CALL_TIMEOUT", "5s", settings.Duration(&t.CallTimeout), "Timeout of one call to a server proxy."),
			settings.New("TUNNEL_CERTIFICATE_LIFETIME", "2160h", settings.Duration(&t.CertificateLifetime), "How long certificates of proxies are valid. They are renewed after two thirds of that time, without interrupting streams."),
		},
	}
}

const (
	// minLifetime is the minimum lifetime of certificates, whose times are in seconds.
	minLifetime = 10 * time.Second
	// kubeletDelay is about how long the kubelet takes to update a changed Secret in a pod.
	kubeletDelay = 2 * time.Minute
)

// check compares the settings with each other. A port that could not be parsed is 0, and has its own error already.
func (t *Tunnel) check() []error {
	var wrong []error
	if t.ControlPort == t.DataPort && t.ControlPort != 0 {
		wrong = append(wrong, errors.New("TUNNEL_CONTROL_PORT: must not be TUNNEL_DATA_PORT"))
	}
	if t.Publish == PublishHostPort && t.HostPorts.Last <= t.HostPorts.First {
		wrong = append(wrong, errors.New("TUNNEL_HOST_PORTS: must be at least two ports if TUNNEL_PUBLISH is HostPort"))
	}
	if t.CertificateLifetime < minLifetime {
		wrong = append(wrong, fmt.Errorf("TUNNEL_CERTIFICATE_LIFETIME: must be %s or more", minLifetime))
	}
	if t.RegistryInsecure && t.RegistryCAFile != "" {
		wrong = append(wrong, errors.New("TUNNEL_REGISTRY_INSECURE: must be false if TUNNEL_REGISTRY_CA_FILE is set"))
	}
	return wrong
}

// warnings returns valid combinations that are probably not intended.
func (t *Tunnel) warnings() []string {
	var all []string
	if t.CertificateLifetime/3 < kubeletDelay {
		all = append(all, fmt.Sprintf("TUNNEL_CERTIFICATE_LIFETIME is %s: certificates are renewed after two thirds of it, and nodes may take %s to update one in a proxy. "+
			"Make it %s or more", t.CertificateLifetime, kubeletDelay, 3*kubeletDelay))
	}
	if t.RegistryInsecure && t.RegistrySecret != "" {
		all = append(all, "TUNNEL_REGISTRY_INSECURE=true and TUNNEL_REGISTRY_SECRET is set: the password can be read by everyone who can see the connection. Give the registry a certificate")
	}
	if t.Image != "" && t.Registry != "" {
		all = append(all, "TUNNEL_IMAGE and TUNNEL_REGISTRY are both set: TUNNEL_IMAGE is used, and no image is built. Unset one of them")
	}
	if t.PullSecret != "" && t.PullSecret == t.RegistrySecret {
		all = append(all, "TUNNEL_PULL_SECRET and TUNNEL_REGISTRY_SECRET name the same Secret: who may read Secrets in a network can replace the image of all proxies. Give nodes credentials that only pull")
	}
	return all
}

func notEmpty(s string) []string {
	if strings.TrimSpace(s) == "" {
		return []string{"must not be empty"}
	}
	return nil
}

// repository accepts one or several parts in lower case, as registries do.
func repository(s string) []string {
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
			return []string{"must be the name of a repository: lower-case letters, digits, '.', '_', '-' and '/'"}
		}
	}
	return nil
}

// parsed reads a value with a function of package allowlist.
func parsed[T any](to *T, parse func(string) (T, error)) settings.Value {
	return settings.Func(func(text string) (err error) {
		*to, err = parse(text)
		return err
	})
}
