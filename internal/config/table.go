package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Variable is one row of the table.
type Variable struct {
	// Name of the environment variable.
	Name string
	// Default is the value when the variable is absent or empty.
	Default string
	// Help is one sentence for an administrator.
	Help string

	boolean bool
	set     func(*Config, string) error
}

// Flag returns the name of the command line option, without the dashes.
func (v Variable) Flag() string {
	return strings.ToLower(strings.ReplaceAll(v.Name, "_", "-"))
}

// Variables returns the table, in the order of the documentation.
func Variables() []Variable {
	return append([]Variable(nil), table...)
}

// DefaultTerminationLog is Kubernetes' own default of terminationMessagePath.
const DefaultTerminationLog = "/dev/termination-log"

var table = []Variable{
	{
		Name: "CHALLENGE_NAMESPACE", Default: "berg",
		Help: "Namespace of a Challenge when a ChallengeInstance does not name one.",
		set:  name(func(c *Config) *string { return &c.Challenge.Namespace }, validation.IsDNS1123Label),
	},
	{
		Name: "CHALLENGE_DOMAIN", Default: "challenges.example.com",
		Help: "Domain under which instances are reached: <uuid>.<domain> for routes, <domain>:<port> for public ports.",
		set:  name(func(c *Config) *string { return &c.Challenge.Domain }, domain),
	},
	{
		Name: "CHALLENGE_HTTP_PORT", Default: "80",
		Help: "Port of the Gateway's HTTP listener, as players see it.",
		set:  port(func(c *Config) *int32 { return &c.Challenge.HTTPPort }),
	},
	{
		Name: "CHALLENGE_HTTP_TLS", Default: "true", boolean: true,
		Help: "Whether players speak HTTPS to that listener, as status.services then tells them. false: plain HTTP.",
		set:  boolean(func(c *Config) *bool { return &c.Challenge.HTTPTLS }),
	},
	{
		Name: "CHALLENGE_TLS_PORT", Default: "443",
		Help: "Port of the Gateway's TLS listener, as players see it.",
		set:  port(func(c *Config) *int32 { return &c.Challenge.TLSPort }),
	},
	{
		Name: "GATEWAY_NAME", Default: "berg-gateway",
		Help: "Name of the Gateway that routes attach to.",
		set:  name(func(c *Config) *string { return &c.Gateway.Name }, validation.IsDNS1123Subdomain),
	},
	{
		Name: "GATEWAY_NAMESPACE", Default: "berg",
		Help: "Namespace of that Gateway.",
		set:  name(func(c *Config) *string { return &c.Gateway.Namespace }, validation.IsDNS1123Label),
	},
	{
		Name: "CHALLENGE_HTTP_LISTENER_NAME", Default: "http",
		Help: "Listener of the Gateway for ports of type publicHttpRoute.",
		set:  name(func(c *Config) *string { return &c.Gateway.HTTPListener }, validation.IsDNS1123Subdomain),
	},
	{
		Name: "CHALLENGE_TLS_LISTENER_NAME", Default: "tls",
		Help: "Listener of the Gateway for ports of type publicTlsRoute.",
		set:  name(func(c *Config) *string { return &c.Gateway.TLSListener }, validation.IsDNS1123Subdomain),
	},
	{
		Name: "GATEWAY_DATAPLANE_NAMESPACES", Default: "",
		Help: "Comma-separated namespaces of the Gateway's proxies. Empty: any pod outside challenge instances, and Cilium's own Gateway, may reach an instance.",
		set:  dataplaneNamespaces,
	},
	{
		Name: "NETWORK_POLICY", Default: "cilium",
		Help: "Which policies isolate an instance: cilium, kubernetes (networking.k8s.io, for other network plugins) or both.",
		set: func(c *Config, s string) error {
			c.Challenge.NetworkPolicy = NetworkPolicy(s)
			return oneOf(s, string(NetworkPolicyCilium), string(NetworkPolicyKubernetes), string(NetworkPolicyBoth))
		},
	},
	{
		Name: "CLUSTER_NODE_CIDRS", Default: "",
		Help: "Comma-separated address ranges of the nodes. Used by the policies of kubernetes, which cannot name nodes otherwise.",
		set:  prefixes(func(c *Config) *[]netip.Prefix { return &c.Challenge.NodeCIDRs }),
	},
	{
		Name: "CLUSTER_POD_CIDRS", Default: "",
		Help: "Comma-separated address ranges of pods and Services. Used by the policies of kubernetes, needed where these are public addresses.",
		set:  prefixes(func(c *Config) *[]netip.Prefix { return &c.Challenge.PodCIDRs }),
	},
	{
		Name: "CHALLENGE_OUTBOUND_PRIVATE", Default: "false", boolean: true,
		Help: "Whether allowOutboundTraffic opens private networks and cloud metadata too, not the internet alone.",
		set:  boolean(func(c *Config) *bool { return &c.Challenge.OutboundPrivate }),
	},
	{
		Name: "CHALLENGE_INSTANCE_TIMEOUT", Default: "2h",
		Help: "How long an instance lives when it does not say, for example 90m or 2h.",
		set:  duration(func(c *Config) *time.Duration { return &c.Challenge.Timeout }, required),
	},
	{
		Name: "CHALLENGE_MAX_LIFETIME", Default: "",
		Help: "Longest life of an instance, whatever it says. Empty: no limit.",
		set:  duration(func(c *Config) *time.Duration { return &c.Challenge.MaxLifetime }, optional),
	},
	{
		Name: "CHALLENGE_START_DEADLINE", Default: "",
		Help: "Time after which an instance that never became ready is Failed. Empty: it may start for as long as it lives.",
		set:  duration(func(c *Config) *time.Duration { return &c.Challenge.StartDeadline }, optional),
	},
	{
		Name: "CHALLENGE_WITHDRAWAL_POLICY", Default: "Keep",
		Help: "What happens to live instances when their Challenge is deleted: Keep lets them run on, Stop ends them.",
		set: func(c *Config, s string) error {
			c.Challenge.WithdrawalPolicy = WithdrawalPolicy(s)
			return oneOf(s, string(WithdrawalKeep), string(WithdrawalStop))
		},
	},
	{
		Name: "ORPHAN_GRACE_PERIOD", Default: "",
		Help: "How long a namespace may outlive its instance, whose finalizer was removed by hand, before it is deleted. Empty: such namespaces are counted and stay.",
		set:  duration(func(c *Config) *time.Duration { return &c.Challenge.OrphanGracePeriod }, optional),
	},
	{
		Name: "CHALLENGE_REF_POLICY", Default: "Any",
		Help: "Whose Challenges an instance may use: Any namespace's, those of the ConfiguredNamespace (CHALLENGE_NAMESPACE) or of the SameNamespace.",
		set: func(c *Config, s string) error {
			c.Challenge.RefPolicy = RefPolicy(s)
			return oneOf(s, string(RefAny), string(RefConfiguredNamespace), string(RefSameNamespace))
		},
	},
	{
		Name:    "CHALLENGE_ALLOWED_CAPABILITIES",
		Default: "AUDIT_WRITE,CHOWN,DAC_OVERRIDE,FOWNER,FSETID,KILL,MKNOD,NET_ADMIN,NET_BIND_SERVICE,NET_RAW,SETFCAP,SETGID,SETPCAP,SETUID,SYS_CHROOT,SYS_PTRACE",
		Help:    "Comma-separated Linux capabilities that a Challenge may add. ALL allows every one, NONE none.",
		set:     capabilities,
	},
	{
		Name: "CHALLENGE_CPU_LIMIT", Default: "1000m",
		Help: "Processor time that a container may use when its Challenge does not say.",
		set:  quantity(func(c *Config) *resource.Quantity { return &c.Challenge.CPULimit }),
	},
	{
		Name: "CHALLENGE_CPU_REQUEST", Default: "100m",
		Help: "Processor time set aside for a container when its Challenge does not say.",
		set:  quantity(func(c *Config) *resource.Quantity { return &c.Challenge.CPURequest }),
	},
	{
		Name: "CHALLENGE_MEMORY_LIMIT", Default: "512Mi",
		Help: "Memory that a container may use when its Challenge does not say.",
		set:  quantity(func(c *Config) *resource.Quantity { return &c.Challenge.MemoryLimit }),
	},
	{
		Name: "CHALLENGE_MEMORY_REQUEST", Default: "128Mi",
		Help: "Memory set aside for a container when its Challenge does not say.",
		set:  quantity(func(c *Config) *resource.Quantity { return &c.Challenge.MemoryRequest }),
	},
	{
		Name: "CHALLENGE_EPHEMERAL_STORAGE_LIMIT", Default: "1Gi",
		Help: "What a container may write to its node's disk, its log included; its pod is evicted above that. 0: no limit.",
		set:  storage(func(c *Config) *resource.Quantity { return &c.Challenge.EphemeralStorageLimit }),
	},
	{
		Name: "CHALLENGE_EPHEMERAL_STORAGE_REQUEST", Default: "64Mi",
		Help: "Disk of its node that is set aside for a container. 0: nothing, for nodes that do not tell the size of their disk.",
		set:  storage(func(c *Config) *resource.Quantity { return &c.Challenge.EphemeralStorageRequest }),
	},
	{
		Name: "CHALLENGE_SECCOMP_PROFILE", Default: string(corev1.SeccompProfileTypeRuntimeDefault),
		Help: "Which system calls containers may make: RuntimeDefault, or Unconfined for every one, which takes the Pod Security level privileged.",
		set: func(c *Config, s string) error {
			c.Challenge.SeccompProfile = corev1.SeccompProfileType(s)
			return oneOf(s, string(corev1.SeccompProfileTypeRuntimeDefault), string(corev1.SeccompProfileTypeUnconfined))
		},
	},
	{
		Name: "CHALLENGE_USER_NAMESPACES", Default: "false", boolean: true,
		Help: "Whether root of a container is nobody on its node (hostUsers: false). Every node's kernel and container runtime must support it.",
		set:  boolean(func(c *Config) *bool { return &c.Challenge.UserNamespaces }),
	},
	{
		Name: "CHALLENGE_EGRESS_BANDWIDTH", Default: "10M",
		Help: "Bits per second that a pod may send when its Challenge does not say.",
		set:  bandwidth(func(c *Config) *string { return &c.Challenge.EgressBandwidth }),
	},
	{
		Name: "CHALLENGE_INGRESS_BANDWIDTH", Default: "10M",
		Help: "Bits per second that a pod may receive when its Challenge does not say.",
		set:  bandwidth(func(c *Config) *string { return &c.Challenge.IngressBandwidth }),
	},
	{
		Name: "CHALLENGE_IMAGE_PULL_POLICY", Default: "IfNotPresent",
		Help: "When nodes pull the images of challenges: Always, IfNotPresent or Never.",
		set: func(c *Config, s string) error {
			c.Challenge.ImagePullPolicy = corev1.PullPolicy(s)
			return oneOf(s, string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever))
		},
	},
	{
		Name: "CHALLENGE_RUNTIME_CLASS_NAME", Default: "",
		Help: "RuntimeClass of pods whose Challenge does not name one, for example gvisor. Empty: that of the cluster.",
		set:  optionalName(func(c *Config) *string { return &c.Challenge.RuntimeClassName }),
	},
	{
		Name: "PULL_SECRET_NAME", Default: "",
		Help: "Secret of type kubernetes.io/dockerconfigjson in the operator's namespace that is copied to every instance. Empty: none.",
		set:  optionalName(func(c *Config) *string { return &c.Challenge.PullSecretName }),
	},
	{
		Name: "CHALLENGE_ADDITIONAL_HEADLESS_SERVICE", Default: "false", boolean: true,
		Help: "Whether every container also gets a headless Service <hostname>-headless.",
		set:  boolean(func(c *Config) *bool { return &c.Challenge.HeadlessService }),
	},
	{
		Name: "NAMESPACE_SUFFIX", Default: "-qdep",
		Help: "What follows the ID of a new Environment in the name of its namespace, at most 19 characters. Existing environments keep their names.",
		set:  name(func(c *Config) *string { return &c.Environment.NamespaceSuffix }, namespaceSuffix),
	},
	{
		Name: "ENVIRONMENT_REGEX", Default: "",
		Help: "Regular expression that the ID of a new Environment must match. Empty: any ID will do.",
		set:  idPattern,
	},
	{
		Name: "SERVICE_ACCOUNT_NAME", Default: "quix-platform-account",
		Help: "ServiceAccount of the platform, which may work in every environment.",
		set:  name(func(c *Config) *string { return &c.Environment.ServiceAccountName }, validation.IsDNS1123Subdomain),
	},
	{
		Name: "SERVICE_ACCOUNT_NAMESPACE", Default: "quix-environment",
		Help: "Namespace of that ServiceAccount.",
		set:  name(func(c *Config) *string { return &c.Environment.ServiceAccountNamespace }, validation.IsDNS1123Label),
	},
	{
		Name: "CLUSTER_ROLE_NAME", Default: "quix-platform-account-role",
		Help: "ClusterRole that says what the platform may do in an environment. The operator must be allowed to bind it.",
		set:  name(func(c *Config) *string { return &c.Environment.ClusterRoleName }, content.IsPathSegmentName),
	},
	{
		Name: "ROLE_VIOLATION_POLICY", Default: "Unbind",
		Help: "What happens to live environments while that ClusterRole lets the platform gain more rights: Unbind takes the platform's rights away, Report only says so.",
		set: func(c *Config, s string) error {
			c.Environment.RoleViolationPolicy = RoleViolationPolicy(s)
			return oneOf(s, string(RoleViolationUnbind), string(RoleViolationReport))
		},
	},
	{
		Name: "CACHE_SYNC_PERIOD", Default: "10m",
		Help: "How often every Environment is looked at again though nothing has changed.",
		set:  duration(func(c *Config) *time.Duration { return &c.Environment.CacheSyncPeriod }, required),
	},
	{
		Name: "CLUSTER_DOMAIN", Default: "cluster.local",
		Help: "DNS domain of the cluster.",
		set:  name(func(c *Config) *string { return &c.Challenge.ClusterDomain }, validation.IsDNS1123Subdomain),
	},
	{
		Name: "POD_NAMESPACE", Default: "berg-operator-system",
		Help: "Namespace of the operator itself: its lease and the pull secret live there.",
		set:  name(func(c *Config) *string { return &c.Challenge.OperatorNamespace }, validation.IsDNS1123Label),
	},
	{
		Name: "ENABLED_APIS", Default: strings.Join(APIs, ","),
		Help: "Comma-separated API groups whose resources the operator works on. It does not watch those of the others.",
		set:  enabledAPIs,
	},
	{
		Name: "METRICS_BIND_ADDRESS", Default: ":8443",
		Help: "Address of the metrics, 0 to serve none.",
		set: func(c *Config, s string) error {
			c.Process.MetricsBindAddress = s
			if s == "0" {
				return nil
			}
			return address(s)
		},
	},
	{
		Name: "METRICS_SECURE", Default: "true", boolean: true,
		Help: "Whether metrics need TLS and a token that may get /metrics.",
		set:  boolean(func(c *Config) *bool { return &c.Process.MetricsSecure }),
	},
	{
		Name: "HEALTH_PROBE_BIND_ADDRESS", Default: ":8081",
		Help: "Address of /healthz and /readyz.",
		set: func(c *Config, s string) error {
			c.Process.HealthProbeBindAddress = s
			return address(s)
		},
	},
	{
		Name: "PPROF_BIND_ADDRESS", Default: "",
		Help: "Address of the profiles of net/http/pprof, for example 127.0.0.1:6060: anyone who reaches it may read them. Empty: none.",
		set: func(c *Config, s string) error {
			c.Process.PprofBindAddress = s
			if s == "" {
				return nil
			}
			return address(s)
		},
	},
	{
		Name: "LEADER_ELECT", Default: "true", boolean: true,
		Help: "Whether replicas elect the one that works.",
		set:  boolean(func(c *Config) *bool { return &c.Process.LeaderElect }),
	},
	{
		Name: "LOG_LEVEL", Default: "0",
		Help: "How much is logged: 0 what an administrator needs, 1 each reconciliation, 2 each write, 6 each request.",
		// From 8 on client-go logs the body of every request, and with it the flags.
		set: integer(func(c *Config) *int { return &c.Process.LogLevel }, 0, 7),
	},
	{
		Name: "MAX_CONCURRENT_RECONCILES", Default: "32",
		Help: "How many instances, and how many Environments, are worked on at the same time. Expiries and deletions of instances have workers of their own, half as many each.",
		set:  integer(func(c *Config) *int { return &c.Process.MaxConcurrentReconciles }, 1, 1000),
	},
	{
		Name: "UPGRADE_HOLD_MAX", Default: "5m",
		Help: "How long instances that are being created or removed may hold up an upgrade by the Operator Lifecycle Manager.",
		set:  duration(func(c *Config) *time.Duration { return &c.Process.UpgradeHoldMax }, required),
	},
	{
		Name: "ISOLATION_CHECK", Default: "off",
		Help: "When a pod tries whether the cluster enforces network policies: off, startup, or interval (at startup and every hour).",
		set: func(c *Config, s string) error {
			c.Process.IsolationCheck = IsolationCheck(s)
			return oneOf(s, string(IsolationCheckOff), string(IsolationCheckStartup), string(IsolationCheckInterval))
		},
	},
	{
		Name: "OPERATOR_CONDITION_NAME", Default: "",
		Help: "OperatorCondition that holds up an upgrade, in the operator's namespace. The Operator Lifecycle Manager sets it. Empty: none.",
		set:  optionalName(func(c *Config) *string { return &c.Process.OperatorConditionName }),
	},
	{
		Name: "TERMINATION_LOG", Default: DefaultTerminationLog,
		Help: "File that Kubernetes reads why the operator ended from. Nothing is written if it does not exist.",
		set: func(c *Config, s string) error {
			if !filepath.IsAbs(s) {
				return errors.New("must be an absolute path")
			}
			c.Process.TerminationLog = s
			return nil
		},
	},
}

// LongestDuration is the longest that can be told in Go, in whole hours: 292 years.
const LongestDuration = 2562047 * time.Hour

const (
	required = true
	optional = false
)

func name(field func(*Config) *string, check func(string) []string) func(*Config, string) error {
	return func(c *Config, s string) error {
		*field(c) = s
		return joined(check(s))
	}
}

func optionalName(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, s string) error {
		*field(c) = s
		if s == "" {
			return nil
		}
		return joined(validation.IsDNS1123Subdomain(s))
	}
}

// domain leaves room for "<uuid>." in front: 253 - 37.
func domain(s string) []string {
	if len(s) > 216 {
		return []string{"must be no more than 216 characters"}
	}
	return validation.IsDNS1123Subdomain(s)
}

// longestSuffix leaves room for an ID of 44 characters in the 63 of a name.
const longestSuffix = 19

func namespaceSuffix(s string) []string {
	if len(s) > longestSuffix {
		return []string{fmt.Sprintf("must be no more than %d characters", longestSuffix)}
	}
	return validation.IsDNS1123Label("id" + s)
}

func idPattern(c *Config, s string) error {
	c.Environment.IDPattern = nil
	if s == "" {
		return nil
	}
	pattern, err := regexp.Compile(s)
	if err != nil {
		return fmt.Errorf("must be a regular expression of Go: %w", err)
	}
	c.Environment.IDPattern = pattern
	return nil
}

func enabledAPIs(c *Config, s string) error {
	c.Process.EnabledAPIs = nil
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" || slices.Contains(c.Process.EnabledAPIs, part) {
			continue
		}
		if err := oneOf(part, APIs...); err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
		c.Process.EnabledAPIs = append(c.Process.EnabledAPIs, part)
	}
	if len(c.Process.EnabledAPIs) == 0 {
		return oneOf("", APIs...)
	}
	return nil
}

func dataplaneNamespaces(c *Config, s string) error {
	c.Gateway.DataplaneNamespaces = nil
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if err := joined(validation.IsDNS1123Label(part)); err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
		c.Gateway.DataplaneNamespaces = append(c.Gateway.DataplaneNamespaces, part)
	}
	return nil
}

// capabilityName is a capability as Kubernetes writes it.
var capabilityName = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

func capabilities(c *Config, s string) error {
	c.Challenge.AllowedCapabilities = nil
	if s == noCapabilities {
		return nil
	}
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		part = strings.TrimPrefix(part, "CAP_")
		if !capabilityName.MatchString(part) || part == noCapabilities {
			return fmt.Errorf("%q: must be the name of a capability such as NET_ADMIN, ALL or, alone, NONE", part)
		}
		c.Challenge.AllowedCapabilities = append(c.Challenge.AllowedCapabilities, part)
	}
	return nil
}

// prefixes reads address ranges, each written with the host bits zero, as a
// network policy wants them.
func prefixes(field func(*Config) *[]netip.Prefix) func(*Config, string) error {
	return func(c *Config, s string) error {
		*field(c) = nil
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			prefix, err := netip.ParsePrefix(part)
			if err != nil || prefix != prefix.Masked() || prefix.Bits() == 0 || prefix.Addr().Is4In6() {
				return fmt.Errorf("%q: must be an address range such as 10.0.0.0/24 or fd00:1::/64", part)
			}
			*field(c) = append(*field(c), prefix)
		}
		return nil
	}
}

func port(field func(*Config) *int32) func(*Config, string) error {
	return func(c *Config, s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 1 || n > 65535 {
			return errors.New("must be a port number from 1 to 65535")
		}
		*field(c) = int32(n)
		return nil
	}
}

func integer(field func(*Config) *int, low, high int) func(*Config, string) error {
	return func(c *Config, s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return fmt.Errorf("must be a number from %d to %d", low, high)
		}
		*field(c) = n
		return nil
	}
}

func boolean(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, s string) error {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return errors.New("must be true or false")
		}
		*field(c) = b
		return nil
	}
}

func duration(field func(*Config) *time.Duration, need bool) func(*Config, string) error {
	return func(c *Config, s string) error {
		if s == "" && !need {
			return nil
		}
		d, err := time.ParseDuration(s)
		if err != nil || d < time.Second {
			return fmt.Errorf("must be a duration from 1s to %dh, for example 90m or 2h", int64(LongestDuration.Hours()))
		}
		*field(c) = d
		return nil
	}
}

func quantity(field func(*Config) *resource.Quantity) func(*Config, string) error {
	return func(c *Config, s string) error {
		q, err := resource.ParseQuantity(s)
		if err != nil || q.Sign() <= 0 {
			return errors.New("must be an amount above zero, for example 500m or 256Mi")
		}
		*field(c) = q
		return nil
	}
}

// storage reads a size of disk, which may be zero. "500m" would be half a byte.
func storage(field func(*Config) *resource.Quantity) func(*Config, string) error {
	return func(c *Config, s string) error {
		q, err := resource.ParseQuantity(s)
		if err != nil || q.Sign() < 0 || q.MilliValue()%1000 != 0 {
			return errors.New("must be a number of bytes, for example 512Mi, or 0")
		}
		*field(c) = q
		return nil
	}
}

// bandwidth follows the limits that the bandwidth plugin of the CNI accepts: 1k
// to 1P bits per second.
func bandwidth(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, s string) error {
		*field(c) = s
		return Bandwidth(s)
	}
}

// Bandwidth checks a number of bits per second as the Kubernetes annotations
// kubernetes.io/egress-bandwidth and ingress-bandwidth accept it: 1k to 1P.
func Bandwidth(s string) error {
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Cmp(resource.MustParse("1k")) < 0 || q.Cmp(resource.MustParse("1P")) > 0 {
		return errors.New("must be a number of bits per second from 1k to 1P, for example 10M")
	}
	return nil
}

func address(s string) error {
	_, p, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("must be an address such as :8081")
	}
	if n, err := strconv.Atoi(p); err != nil || n < 0 || n > 65535 {
		return errors.New("must end in a port number")
	}
	return nil
}

func oneOf(s string, allowed ...string) error {
	for _, a := range allowed {
		if s == a {
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(allowed, ", "))
}

func joined(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}
