package gate

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Config is the settings of the gate.
type Config struct {
	// Enabled is false while an installation by the Operator Lifecycle Manager does not use the gate.
	Enabled bool
	// Controller is the controllerName of the GatewayClasses that are served.
	Controller string
	// Ports that listeners of Gateways may have. PortOffset is added for the port at which the process listens at BindHost.
	Ports      []int32
	BindHost   string
	PortOffset int
	// AdminBindAddress serves metrics, health and the question whether a host is served. LeaderElection is false for a single process.
	AdminBindAddress string
	LeaderElection   bool
	// Namespace of the gate, with its Lease and its Services, from which Gateways get their addresses.
	Namespace, LeaseName string
	Services             []string
	// GatewayNamespace has the Gateway of the instances, which goes before all others.
	GatewayNamespace string
	// Addresses of Gateways, which replace the addresses of the Service.
	Addresses []string
	// TrustedProxies send a PROXY protocol header.
	TrustedProxies []netip.Prefix
	// RedirectToHTTPS answers plain requests for hosts that are served with TLS.
	RedirectToHTTPS bool
	// Drain is how long open connections may continue when the gate ends.
	Drain time.Duration
	// MaxConnections in total, of an address, and of a host.
	MaxConnections, AddressConnections, HostConnections int
	// AddressRate is the number of MiB per second of an address, and AddressRequests its number of requests; 0 is unlimited.
	AddressRate, AddressRequests int
}

// Section is the table of the settings.
func (c *Config) Section() settings.Section {
	return settings.Section{
		Title: "Gate",
		Settings: []settings.Setting{
			settings.New("GATE_ENABLED", "false", settings.Bool(&c.Enabled), "Whether Gateways are served. false: only /healthz and /readyz are, and only this setting is read of the cluster, for an installation by the Operator Lifecycle Manager that does not use the gate yet. The chart and config/gate set true."),
			settings.New("GATE_CONTROLLER", "berg.norelect.ch/gate", settings.Func(func(text string) error { c.Controller = text; return nil }), "controllerName of the GatewayClasses that are served."),
			settings.New("GATE_PORTS", "80,443,8443", settings.Func(c.setPorts), "Ports that listeners of Gateways may have, separated by commas. The Service of the gate must have the same."),
			settings.New("GATE_PORT_OFFSET", "8000", settings.Int(&c.PortOffset, 0, 60000), "What is added to the port of a listener for the port at which the gate listens: 8000 serves port 443 at 8443, which any user may open."),
			settings.New("GATE_BIND_HOST", "", settings.Func(func(text string) error { c.BindHost = text; return nil }), "Address at which the ports are served. Empty: all."),
			settings.New("ADMIN_BIND_ADDRESS", ":9090", settings.Address(&c.AdminBindAddress, ""), "Where metrics, /healthz, /readyz and /served are served."),
			settings.New("LEADER_ELECTION", "true", settings.Bool(&c.LeaderElection), "Whether replicas agree on the one that writes statuses. false: for a single process outside of a cluster."),
			settings.New("LEASE_NAME", "berg-gate", settings.Name(&c.LeaseName, validation.IsDNS1123Subdomain), "Lease of the replica that writes statuses."),
			settings.New("POD_NAMESPACE", "berg-operator-system", settings.Name(&c.Namespace, validation.IsDNS1123Label), "The gate's own namespace. Kubernetes sets it."),
			settings.New("GATE_SERVICES", "berg-gate", settings.Names(&c.Services), "Services of the gate in its own namespace, separated by commas. Gateways get the addresses of one: those of the load balancer, else the external ones, else that of the cluster. Then Gateways can have the same hosts and ports. The second one leads to the ports from 20100 of the pods, in the order of GATE_PORTS, the third one to those from 20200."),
			settings.New("GATEWAY_NAMESPACE", "berg", settings.Name(&c.GatewayNamespace, validation.IsDNS1123Label), "Namespace of the Gateway of the instances, the same as the operator's. Its Gateways keep their host names and ports, also from older Gateways of other namespaces."),
			settings.New("GATE_ADDRESSES", "", settings.Func(c.setAddresses), "IP addresses of Gateways, separated by commas, instead of those of the Service."),
			settings.New("GATE_TRUSTED_PROXIES", "", settings.Prefixes(&c.TrustedProxies), "Address ranges of load balancers whose connections begin with a PROXY protocol header, separated by commas. Empty: no connection has one."),
			settings.New("GATE_REDIRECT_HTTPS", "true", settings.Bool(&c.RedirectToHTTPS), "Whether a request without TLS for a host that is served with TLS only is sent to https://."),
			settings.New("GATE_DRAIN", "30s", settings.Duration(&c.Drain), "How long open connections may continue when a replica ends. terminationGracePeriodSeconds must be longer."),
			settings.New("GATE_MAX_CONNECTIONS", "20000", settings.Int(&c.MaxConnections, 16, 1_000_000), "Maximum number of connections of one replica. Further ones are closed."),
			settings.New("GATE_ADDRESS_CONNECTIONS", "512", settings.Int(&c.AddressConnections, 1, 1_000_000), "Maximum number of connections of one address, or of one /64 of IPv6. Raise it if many players share an address."),
			settings.New("GATE_HOST_CONNECTIONS", "1024", settings.Int(&c.HostConnections, 1, 1_000_000), "Maximum number of requests and streams of one host name at a time. One address may have half of them."),
			settings.New("GATE_ADDRESS_RATE", "64", settings.Int(&c.AddressRate, 0, 100_000), "Maximum MiB per second of one address, or of one /64 of IPv6, in both directions together, so that one player leaves bandwidth for others. 0: unlimited. Raise it if many players share an address."),
			settings.New("GATE_ADDRESS_REQUESTS", "1000", settings.Int(&c.AddressRequests, 0, 1_000_000), "Maximum requests per second of one address, or of one /64 of IPv6. Further ones wait. 0: unlimited. Raise it if many players share an address."),
		},
		Check: c.check,
	}
}

// The ports of the pod for the second Service and further ones begin at furtherPorts.
const (
	furtherPorts    = 20000
	portsPerService = 100
	maxServices     = 100
)

// podPort is the port of the pod for a port of GATE_PORTS at a Service, both by their places in the settings.
func (c *Config) podPort(service, port int) int {
	if service == 0 {
		return int(c.Ports[port]) + c.PortOffset
	}
	return furtherPorts + service*portsPerService + port
}

func (c *Config) check() []error {
	var problems []error
	if len(c.Services) == 0 {
		problems = append(problems, errors.New("GATE_SERVICES: must name a Service"))
	}
	if len(c.Ports) > portsPerService {
		problems = append(problems, fmt.Errorf("GATE_PORTS: at most %d ports", portsPerService))
	}
	if len(c.Services) > maxServices {
		problems = append(problems, fmt.Errorf("GATE_SERVICES: at most %d Services", maxServices))
	}
	for i, port := range c.Ports {
		if highest := c.podPort(0, i); highest > 65535 {
			problems = append(problems, fmt.Errorf("GATE_PORTS: with GATE_PORT_OFFSET, port %d would be %d in the pod: the highest is 65535", port, highest))
		}
	}
	return problems
}

func (c *Config) setPorts(text string) error {
	c.Ports = nil
	for part := range settings.Parts(text) {
		port, err := strconv.ParseInt(part, 10, 32)
		if err != nil || port < 1 || port > 65535 {
			return fmt.Errorf("%q: must be a port number from 1 to 65535", part)
		}
		c.Ports = append(c.Ports, int32(port))
	}
	if len(c.Ports) == 0 {
		return fmt.Errorf("%q: must have a port, for example 80,443,8443", text)
	}
	return nil
}

func (c *Config) setAddresses(text string) error {
	c.Addresses = nil
	for part := range settings.Parts(text) {
		if _, err := netip.ParseAddr(part); err != nil {
			return fmt.Errorf("%q: must be an IP address", part)
		}
		c.Addresses = append(c.Addresses, part)
	}
	return nil
}
