package server

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/platform/livepage"
)

// Config is the settings of the API.
type Config struct {
	// Enabled: the API works. Without it, it reads nothing of the cluster: see RunOff.
	Enabled bool
	// BindAddress of the API, MetricsBindAddress of metrics and health.
	BindAddress, MetricsBindAddress string
	// Namespaces of platforms. A token that names no namespace uses the first one.
	Namespaces []string
	// TokenSecret is the Secret with the tokens, in TokenNamespace.
	TokenSecret, TokenNamespace string
	// CertDir has tls.crt and tls.key. "": plain HTTP.
	CertDir string
	// BootWait and ReadWait bound how long answers wait.
	BootWait, ReadWait time.Duration
	// SourceRate and Rate are requests a second of one source that write, and of all; bursts are twice as many.
	SourceRate, Rate int
	// MaxConnections at a time. AddressConnections are the connections of one address at a time; 0: half of all.
	MaxConnections, AddressConnections int
	// LivePage are the settings of the live page, in addition to Namespaces.
	LivePage livepage.Options
	// AdditionalPolicy is the treatment of the variables that a platform sends with a scenario.
	AdditionalPolicy string
}

// The values of ADDITIONAL_POLICY.
const (
	AdditionalRefuse = "refuse"
	AdditionalIgnore = "ignore"
)

// setSourceURL checks that the address is one, and has the id of a source.
func (c *Config) setSourceURL(text string) error {
	address, err := url.Parse(strings.ReplaceAll(text, "{source}", "1"))
	if err != nil || address.Scheme != "https" && address.Scheme != "http" || address.Host == "" || !strings.Contains(text, "{source}") {
		return errors.New("must be an address with {source}, for example https://ctf.example.com/admin/teams/{source}")
	}
	c.LivePage.SourceURL = text
	return nil
}

// Section is the table of the settings.
func (c *Config) Section() settings.Section {
	return settings.Section{
		Title: "Platform API",
		Settings: []settings.Setting{
			settings.New("PLATFORM_API", "false", settings.Bool(&c.Enabled), "Whether platforms are served. false: only /healthz and /readyz are, and only this setting is read of the cluster, for an installation by the Operator Lifecycle Manager that does not use the API yet. The chart and config/berg/api set true."),
			settings.New("BIND_ADDRESS", ":8080", settings.Address(&c.BindAddress, ""), "Where platforms reach the API."),
			settings.New("METRICS_BIND_ADDRESS", ":8081", settings.Address(&c.MetricsBindAddress, ""), "Where metrics, /healthz and /readyz are served, without a token."),
			settings.New("PLATFORM_NAMESPACE", "berg", settings.Names(&c.Namespaces), "Namespaces that have Challenges, instances and registrations of platforms, separated by commas. Tokens that name none are for the first one. Give the API's ServiceAccount the Role in each of them."),
			settings.New("TOKEN_SECRET", "berg-api-tokens", settings.Name(&c.TokenSecret, validation.IsDNS1123Subdomain), "Secret with the tokens, in the API's own namespace: a key for each, with endpoint, token and, optionally, namespace. It is read again when it changes."),
			settings.New("POD_NAMESPACE", "berg-operator-system", settings.Name(&c.TokenNamespace, validation.IsDNS1123Label), "The API's own namespace. Kubernetes sets it."),
			settings.New("CERT_DIR", "", settings.Optional(settings.Path(&c.CertDir)), "Folder with tls.crt and tls.key, which are read again when they change. Empty: plain HTTP, for a platform in the same cluster."),
			settings.New("BOOT_WAIT", "45s", settings.Duration(&c.BootWait), "How long the answer to a start waits until the instance runs. It must be shorter than the timeout of the platform and of every proxy between."),
			settings.New("READ_WAIT", "5s", settings.Duration(&c.ReadWait), "How long the answer to a read waits for an instance that is starting."),
			settings.New("SOURCE_RATE", "5", settings.Int(&c.SourceRate, 1, 1_000), "Maximum number of starts, renewals and stops of one user or team per second, on average. A burst may be twice as large."),
			settings.New("RATE", "3000", settings.Int(&c.Rate, 1, 1_000_000), "Maximum number of requests per second, on average. A burst may be twice as large."),
			settings.New("MAX_CONNECTIONS", "8192", settings.Int(&c.MaxConnections, 16, 1_000_000), "Maximum number of concurrent connections. Further ones wait. Connections without a valid token are a quarter of them at most, and 1024: the oldest one ends in favour of a further one."),
			settings.New("MAX_CONNECTIONS_PER_ADDRESS", "0", settings.Int(&c.AddressConnections, 0, 1_000_000), "Maximum number of concurrent connections of one IPv4 address, or of one /64 network of IPv6. Further ones are closed. A Gateway is one address, whose clients share this number. 0: half of MAX_CONNECTIONS."),
			settings.New("ADDITIONAL_POLICY", AdditionalRefuse, settings.Enum(&c.AdditionalPolicy, AdditionalRefuse, AdditionalIgnore), "What to do with variables that CTFd sends for a scenario, which no Challenge has: refuse, or ignore."),
			settings.New("RECORD_NAMESPACE", "", settings.Optional(settings.Name(&c.LivePage.RecordNamespace, validation.IsDNS1123Label)), "Namespace of the ChallengeInstanceRecords that the live page shows, with the ends of logs: the operator's RECORD_NAMESPACE. The API's ServiceAccount must be allowed to read them. Empty: none."),
			settings.New("NODE_PORTS", "2768", settings.Int(&c.LivePage.NodePorts, 1, 65535), "Number of node ports of the API server, for the live page."),
			settings.New("NODE_RESERVE", "10", settings.Int(&c.LivePage.NodeReserve, 0, 90), "How much of each node other pods than those of instances reserve, in percent. The live page subtracts it from the capacity."),
			settings.New("GATE_ADDRESS", "berg-gate-admin:9090", settings.Optional(settings.Address(&c.LivePage.GateAddress, "")), "Name that resolves to all replicas of the gate, with the port of their ADMIN_BIND_ADDRESS. The live page says when players used an instance. Where the gate is not installed there is no such name, and the page says nothing of it. Empty: it asks no gate."),
			settings.New("OPERATOR_DEPLOYMENT", "berg-operator-controller-manager", settings.Name(&c.LivePage.Operator.Deployment, validation.IsDNS1123Subdomain), "Deployment of the operator, in the API's own namespace. The live page calculates the capacity from its variables. Give the API's ServiceAccount the Role for it."),
			settings.New("LEASE_NAME", "berg-operator.berg.norelect.ch", settings.Name(&c.LivePage.Operator.Lease, validation.IsDNS1123Subdomain), "The operator's setting of this name. The live page says when no replica of the operator renews this Lease."),
			settings.New("SOURCE_URL", "", settings.Optional(settings.Func(c.setSourceURL)), "Address of a user or team of the platform with {source} for its id, such as https://ctf.example.com/admin/teams/{source}. The live page links to it. Empty: no link."),
		},
		Check: func() []error {
			if len(c.Namespaces) == 0 {
				return []error{errors.New("PLATFORM_NAMESPACE: must name a namespace")}
			}
			return nil
		},
	}
}
