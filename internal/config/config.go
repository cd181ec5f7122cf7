// Package config holds everything an administrator can set, in one table: each
// row gives a variable's name, default, help and validation. The environment,
// the command line, the documentation and the checks of the deployed manifests
// are all derived from it.
package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Config is the effective configuration of one operator process.
type Config struct {
	Challenge   Challenge
	Gateway     Gateway
	Environment Environment
	Process     Process
}

// The APIs of the operator, by their groups.
const (
	APIBerg = "berg.norelect.ch"
	APIQuix = "quix.io"
)

// APIs lists all of them.
var APIs = []string{APIBerg, APIQuix}

// Challenge is what every challenge instance gets unless its Challenge says
// otherwise.
type Challenge struct {
	Namespace           string
	Domain              string
	HTTPPort            int32
	HTTPTLS             bool // whether players speak HTTPS to HTTPPort
	TLSPort             int32
	Timeout             time.Duration
	MaxLifetime         time.Duration // 0: no cap
	StartDeadline       time.Duration // 0: none
	WithdrawalPolicy    WithdrawalPolicy
	RefPolicy           RefPolicy
	AllowedCapabilities []string // without CAP_; AllCapabilities stands for every one
	CPULimit            resource.Quantity
	CPURequest          resource.Quantity
	MemoryLimit         resource.Quantity
	MemoryRequest       resource.Quantity
	EgressBandwidth     string
	IngressBandwidth    string
	ImagePullPolicy     corev1.PullPolicy
	RuntimeClassName    string
	PullSecretName      string
	HeadlessService     bool
	ClusterDomain       string
	NetworkPolicy       NetworkPolicy
	NodeCIDRs           []netip.Prefix // nil: not known
	PodCIDRs            []netip.Prefix // of pods and Services; nil: private addresses
	OutboundPrivate     bool           // whether outbound traffic may go to private networks too
	OperatorNamespace   string         // where the pull secret is read from
	OrphanGracePeriod   time.Duration  // 0: namespaces whose instance is gone stay

	// What a container may do to its node. Ephemeral storage is the disk that it writes
	// to: its own file system and its log.
	EphemeralStorageLimit   resource.Quantity         // 0: none
	EphemeralStorageRequest resource.Quantity         // 0: nothing
	SeccompProfile          corev1.SeccompProfileType // "": the node's, of instances that an earlier version started
	UserNamespaces          bool
}

// Gateway names the Gateway that exposes challenges, and its listeners.
type Gateway struct {
	Name                string
	Namespace           string
	HTTPListener        string
	TLSListener         string
	DataplaneNamespaces []string // nil: its proxies may be any pod
}

// Environment is what every Quix environment gets.
type Environment struct {
	// NamespaceSuffix follows the ID in the name of a new namespace: at most 19
	// characters, so that the name fits into 63.
	NamespaceSuffix string
	// IDPattern must match the ID of a new environment; nil: any ID will do.
	IDPattern *regexp.Regexp
	// ServiceAccountName and ServiceAccountNamespace name the platform's
	// ServiceAccount, which is bound in every environment.
	ServiceAccountName      string
	ServiceAccountNamespace string
	// ClusterRoleName names the ClusterRole that it is bound to.
	ClusterRoleName     string
	RoleViolationPolicy RoleViolationPolicy
	CacheSyncPeriod     time.Duration
}

// RoleViolationPolicy says what happens to the bindings of live environments
// while their ClusterRole is dangerous.
type RoleViolationPolicy string

// The role violation policies.
const (
	RoleViolationUnbind RoleViolationPolicy = "Unbind"
	RoleViolationReport RoleViolationPolicy = "Report"
)

// Process is how the operator itself runs.
type Process struct {
	EnabledAPIs             []string // of APIs
	MetricsBindAddress      string   // "0": not served
	MetricsSecure           bool
	HealthProbeBindAddress  string
	PprofBindAddress        string // "": not served
	LeaderElect             bool
	LogLevel                int // verbosity: 0 is info
	MaxConcurrentReconciles int
	UpgradeHoldMax          time.Duration
	IsolationCheck          IsolationCheck
	OperatorConditionName   string // "": not installed by OLM
	TerminationLog          string
}

// NetworkPolicy says which kind of policy isolates an instance.
type NetworkPolicy string

// The kinds of network policy.
const (
	// NetworkPolicyCilium writes a CiliumNetworkPolicy.
	NetworkPolicyCilium NetworkPolicy = "cilium"
	// NetworkPolicyKubernetes writes a NetworkPolicy of networking.k8s.io, for
	// other network plugins.
	NetworkPolicyKubernetes NetworkPolicy = "kubernetes"
	// NetworkPolicyBoth writes both.
	NetworkPolicyBoth NetworkPolicy = "both"
)

// Cilium reports whether a CiliumNetworkPolicy is wanted.
func (p NetworkPolicy) Cilium() bool { return p != NetworkPolicyKubernetes }

// Kubernetes reports whether a NetworkPolicy of networking.k8s.io is wanted.
func (p NetworkPolicy) Kubernetes() bool { return p != NetworkPolicyCilium }

// IsolationCheck says when the operator tries whether network policies are
// enforced.
type IsolationCheck string

// The times of the check.
const (
	IsolationCheckOff     IsolationCheck = "off"
	IsolationCheckStartup IsolationCheck = "startup"
	// IsolationCheckInterval is at startup and every hour from then on.
	IsolationCheckInterval IsolationCheck = "interval"
)

// WithdrawalPolicy says what happens to live instances whose Challenge is
// deleted.
type WithdrawalPolicy string

// The withdrawal policies.
const (
	WithdrawalKeep WithdrawalPolicy = "Keep"
	WithdrawalStop WithdrawalPolicy = "Stop"
)

// RefPolicy says of which namespaces an instance may use Challenges.
type RefPolicy string

// The policies of references.
const (
	RefAny                 RefPolicy = "Any"
	RefConfiguredNamespace RefPolicy = "ConfiguredNamespace"
	RefSameNamespace       RefPolicy = "SameNamespace"
)

// AllCapabilities among the allowed ones allows every capability.
const AllCapabilities = "ALL"

// noCapabilities as the whole list allows none: an empty variable means its
// default.
const noCapabilities = "NONE"

// Value is a variable with its effective text.
type Value struct {
	Name, Value string
}

// Load reads the configuration from the command line, then the environment,
// then the defaults. An empty variable counts as absent. It reports all errors
// at once, each naming its variable; flag.ErrHelp after printing the help to
// out when args ask for it.
func Load(args []string, getenv func(string) string, out io.Writer) (Config, []Value, error) {
	flags := flag.NewFlagSet("berg-operator", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned, and help is printed once, below
	given := make(map[string]*text, len(table))
	for i := range table {
		given[table[i].Name] = &text{boolean: table[i].boolean}
		flags.Var(given[table[i].Name], table[i].Flag(), table[i].Help)
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			printHelp(out)
		}
		return Config{}, nil, err
	}
	if rest := flags.Args(); len(rest) > 0 {
		return Config{}, nil, fmt.Errorf("unexpected argument %q: options begin with --", rest[0])
	}

	var cfg Config
	var problems []error
	effective := make([]Value, 0, len(table))
	for _, v := range table {
		value := v.Default
		if env := strings.TrimSpace(getenv(v.Name)); env != "" {
			value = env
		}
		if t := given[v.Name]; t.set {
			value = t.value
		}
		if err := v.set(&cfg, value); err != nil {
			problems = append(problems, fmt.Errorf("%s=%q: %w", v.Name, value, err))
		}
		effective = append(effective, Value{v.Name, value})
	}
	problems = append(problems, cfg.check()...)
	return cfg, effective, errors.Join(problems...)
}

// check compares variables with each other. Rows that did not parse are zero
// and pass.
func (c Config) check() []error {
	var problems []error
	if c.Challenge.CPURequest.Cmp(c.Challenge.CPULimit) > 0 && !c.Challenge.CPULimit.IsZero() {
		problems = append(problems, errors.New("CHALLENGE_CPU_REQUEST: must not be above CHALLENGE_CPU_LIMIT"))
	}
	if c.Challenge.MemoryRequest.Cmp(c.Challenge.MemoryLimit) > 0 && !c.Challenge.MemoryLimit.IsZero() {
		problems = append(problems, errors.New("CHALLENGE_MEMORY_REQUEST: must not be above CHALLENGE_MEMORY_LIMIT"))
	}
	if c.Challenge.EphemeralStorageRequest.Cmp(c.Challenge.EphemeralStorageLimit) > 0 && !c.Challenge.EphemeralStorageLimit.IsZero() {
		problems = append(problems, errors.New("CHALLENGE_EPHEMERAL_STORAGE_REQUEST: must not be above CHALLENGE_EPHEMERAL_STORAGE_LIMIT"))
	}
	if c.Challenge.HTTPPort == c.Challenge.TLSPort && c.Challenge.HTTPPort != 0 {
		problems = append(problems, errors.New("CHALLENGE_TLS_PORT: must differ from CHALLENGE_HTTP_PORT"))
	}
	if c.Gateway.HTTPListener == c.Gateway.TLSListener && c.Gateway.HTTPListener != "" {
		problems = append(problems, errors.New("CHALLENGE_TLS_LISTENER_NAME: must differ from CHALLENGE_HTTP_LISTENER_NAME: no listener serves HTTPRoutes and TLSRoutes"))
	}
	return problems
}

// The ports at which clients expect HTTP and HTTPS.
const (
	plainWebPort  = 80
	secureWebPort = 443
)

// Warnings returns what can be meant and hardly is, each naming its variables.
func (c Config) Warnings() []string {
	if !slices.Contains(c.Process.EnabledAPIs, APIBerg) {
		return nil
	}
	switch {
	case c.Challenge.HTTPTLS && c.Challenge.HTTPPort == plainWebPort:
		return []string{"CHALLENGE_HTTP_TLS=true and CHALLENGE_HTTP_PORT=80: players are sent to HTTPS at the port of plain HTTP. If the Gateway serves HTTPS at 443, set that port; if it serves plain HTTP, set CHALLENGE_HTTP_TLS=false"}
	case !c.Challenge.HTTPTLS && c.Challenge.HTTPPort == secureWebPort:
		return []string{"CHALLENGE_HTTP_TLS=false and CHALLENGE_HTTP_PORT=443: players are sent to plain HTTP at the port of HTTPS. If the Gateway serves HTTPS there, set CHALLENGE_HTTP_TLS=true"}
	}
	return nil
}

// text is a flag that remembers whether it was given.
type text struct {
	value   string
	set     bool
	boolean bool
}

func (t *text) String() string     { return t.value }
func (t *text) Set(s string) error { t.value, t.set = s, true; return nil }
func (t *text) IsBoolFlag() bool   { return t.boolean }

func printHelp(out io.Writer) {
	_, _ = fmt.Fprintln(out, "berg-operator runs CTF challenge instances and Quix environments on Kubernetes.\n\nOptions (each also as an environment variable; an option wins):")
	for _, v := range table {
		_, _ = fmt.Fprintf(out, "  --%s  (%s, default %q)\n        %s\n", v.Flag(), v.Name, v.Default, v.Help)
	}
}
