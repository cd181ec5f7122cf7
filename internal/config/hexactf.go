package config

import (
	"net/netip"
	"time"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// HexaCTF configures HexaCTF challenges. The help of each setting describes its field.
type HexaCTF struct {
	Isolation         bool
	Egress            Egress
	PodCIDRs          []netip.Prefix // nil: private addresses
	StartDeadline     time.Duration
	DefinitionTimeout time.Duration
	MetricRetention   time.Duration
	TrustedAuthors    bool
	// AllowedCapabilities are the capabilities that containers may add, without CAP_. AllCapabilities
	// among them allows every one.
	AllowedCapabilities []string
	Kafka               Kafka
}

// Egress decides which addresses an isolated challenge may reach in addition to its own components
// and the cluster's name servers.
type Egress string

// The kinds of egress.
const (
	EgressNone     Egress = "none"
	EgressInternet Egress = "internet"
	EgressAll      Egress = "all"
)

// Section returns the settings, which are read into h.
func (h *HexaCTF) Section() settings.Section {
	return settings.Section{
		Title:    "HexaCTF challenges (apps.hexactf.io)",
		Check:    h.Kafka.check,
		Warnings: h.Kafka.warnings,
		Settings: append([]settings.Setting{
			settings.New("HEXACTF_ISOLATION", "true", settings.Bool(&h.Isolation), "Whether new challenges are isolated: a NetworkPolicy for each, no service account token, no environment variables of other Services, seccomp profile RuntimeDefault. false: as open as the cluster is."),
			settings.New("HEXACTF_EGRESS", string(EgressNone), settings.Enum(&h.Egress, EgressNone, EgressInternet, EgressAll), "What isolated challenges may reach in addition to their own components and the cluster's name servers: none, internet (no private networks), all."),
			settings.New("HEXACTF_POD_CIDRS", "", settings.Prefixes(&h.PodCIDRs), "Comma-separated address ranges of pods and Services, needed for HEXACTF_EGRESS=internet where these are public addresses."),
			settings.New("HEXACTF_ALLOWED_CAPABILITIES", defaultCapabilities, capabilities(&h.AllowedCapabilities), "Comma-separated Linux capabilities that a container of a ChallengeDefinition may add. ALL allows all, NONE allows none. More than the default needs the exemption capabilities."),
			settings.New("HEXACTF_TRUSTED_AUTHORS", "false", settings.Bool(&h.TrustedAuthors), "Whether authors of ChallengeDefinitions are trusted like administrators of the nodes and of their namespace. true allows privileged containers, ports of the node, every capability, Secrets and ConfigMaps as variables, and hosts in probes and hooks, together with the exemption hexactf-trusted-authors."),
			settings.New("HEXACTF_START_DEADLINE", "5m", settings.Duration(&h.StartDeadline), "Time after which a challenge whose Deployments were never available is in Error. It resumes when they become available."),
			settings.New("HEXACTF_DEFINITION_TIMEOUT", "5m", settings.Duration(&h.DefinitionTimeout), "How long a challenge waits for its ChallengeDefinition to exist. Then it is deleted."),
			settings.New("METRIC_RETENTION", "1m", settings.Duration(&h.MetricRetention), "How long challenge_resource_status still reports a deleted challenge, so that Prometheus scrapes it at least once."),
		}, h.Kafka.settings()...),
	}
}
