package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Berg holds the settings for challenge instances.
type Berg struct {
	Challenge      Challenge
	Gateway        Gateway
	IsolationCheck IsolationCheck
	Check          Check
	Prepull        Prepull
	Record         Record
}

// Prepull configures how images of Challenges are pulled before players need them. CHALLENGE_IMAGE_PULL_POLICY still decides
// whether a node pulls an image that it has.
type Prepull struct {
	Lead        time.Duration // before hideUntil; 0: nothing is pulled ahead
	Concurrency int           // how many images at a time, on all nodes together
}

// Record configures the records of ended instances.
type Record struct {
	Retention time.Duration     // 0: none are written
	Namespace string            // Namespace of the records
	Limit     int               // maximum number
	Size      resource.Quantity // maximum of all together
}

// Check configures ChallengeChecks.
type Check struct {
	Concurrency int // how many at a time; 0: none
}

// TimeoutFrom is the time at which the lifetime of an instance begins.
type TimeoutFrom string

// Values of CHALLENGE_TIMEOUT_FROM.
const (
	TimeoutFromStart TimeoutFrom = "start"
	TimeoutFromReady TimeoutFrom = "ready"
)

// Challenge holds the defaults and limits of challenge instances; a Challenge may set
// other values for most of them.
type Challenge struct {
	Defaults

	Namespace     string
	Timeout       time.Duration
	MaxLifetime   time.Duration // 0: no cap
	StartDeadline time.Duration // 0: none
	TimeoutFrom   TimeoutFrom
	// ConnectTimeout is how long Running waits for a connection. 0: it does not.
	ConnectTimeout time.Duration
	MaxInstances   int // 0: no limit
	// NamespaceMaxInstances is of one namespace, SourceMaxInstances and SourceBudget are of one source. 0: no limit.
	NamespaceMaxInstances, SourceMaxInstances, SourceBudget int
	WarmMaxInstances                                        int // prepared ones; 0: none
	WarmMaxStarting                                         int // of them, that start at a time
	WithdrawalPolicy                                        WithdrawalPolicy
	RefPolicy                                               RefPolicy
	InstanceNamespaces                                      []string // empty: all
	AllowedCapabilities                                     []string // without CAP_; AllCapabilities stands for all
	HeadlessService                                         bool
	ClusterDomain                                           string
	NetworkPolicy                                           NetworkPolicy
	CiliumNamespace                                         string
	NodeCIDRs                                               []netip.Prefix // nil: not known
	PodCIDRs                                                []netip.Prefix // ranges of pods and Services; nil: private addresses
	OutboundPrivate                                         bool           // whether outbound traffic may go to private networks too
	OrphanGracePeriod                                       time.Duration  // 0: namespaces without an instance are kept
}

// Defaults are the settings from which the pods and the addresses of an instance are built. An instance keeps the defaults
// of its start: later ones would restart its pods. A setting that pods are built from belongs here; all of it is
// stored, put back and compared as one value.
type Defaults struct {
	Domain           string
	HTTPPort         int32
	HTTPTLS          HTTPTLS // UsesHTTPS goes by it
	TLSPort          int32
	CPULimit         resource.Quantity
	CPURequest       resource.Quantity
	MemoryLimit      resource.Quantity
	MemoryRequest    resource.Quantity
	EgressBandwidth  string
	IngressBandwidth string
	ImagePullPolicy  corev1.PullPolicy
	RuntimeClassName string
	PullSecretName   string

	// The limits of what a container may do to its node. Ephemeral storage is the disk that it writes
	// to: its own file system and its log.
	EphemeralStorageLimit   resource.Quantity // 0: none
	EphemeralStorageRequest resource.Quantity // 0: nothing
	SeccompProfile          corev1.SeccompProfileType
	UserNamespaces          UserNamespaces
	NestedSeccompProfile    string // profile of containers with sandbox: nested; "": there are none
}

// Resolved returns defaults that are equal if instances with them are: HTTPTLS does not depend on the port. It is to be used
// before two of them are compared.
func (d Defaults) Resolved() Defaults {
	tls := HTTPTLSFalse
	if d.UsesHTTPS() {
		tls = HTTPTLSTrue
	}
	d.HTTPTLS = tls
	return d
}

// Gateway names the Gateway that exposes challenges, and its listeners.
type Gateway struct {
	Name                string
	Namespace           string
	HTTPListener        string
	TLSListener         string
	DataplaneNamespaces []string // nil: its proxies may be any pod
}

// NetworkPolicy is the kind of policy that isolates an instance. NetworkPolicyAuto has to be
// resolved for the cluster, with On.
type NetworkPolicy string

// The kinds of network policy.
const (
	// NetworkPolicyAuto is NetworkPolicyCilium where an agent of Cilium is ready, NetworkPolicyBoth
	// where the API of Cilium is served alone, and NetworkPolicyKubernetes elsewhere.
	NetworkPolicyAuto NetworkPolicy = "auto"
	// NetworkPolicyCilium writes a CiliumNetworkPolicy.
	NetworkPolicyCilium NetworkPolicy = "cilium"
	// NetworkPolicyKubernetes writes a NetworkPolicy of networking.k8s.io, for
	// other network plugins.
	NetworkPolicyKubernetes NetworkPolicy = "kubernetes"
	// NetworkPolicyBoth writes both.
	NetworkPolicyBoth NetworkPolicy = "both"
)

// On resolves NetworkPolicyAuto for a cluster. The API of Cilium outlives Cilium: the
// policies of both kinds are written where it is served and no agent is ready.
func (p NetworkPolicy) On(servesCilium, agentReady bool) NetworkPolicy {
	switch {
	case p != NetworkPolicyAuto:
		return p
	case servesCilium && agentReady:
		return NetworkPolicyCilium
	case servesCilium:
		return NetworkPolicyBoth
	default:
		return NetworkPolicyKubernetes
	}
}

// Cilium reports whether a CiliumNetworkPolicy is wanted, or may be.
func (p NetworkPolicy) Cilium() bool { return p != NetworkPolicyKubernetes }

// OutlivesNamespace reports whether pods are confined also when the policies of their namespace are gone: Cilium's has a policy
// for the whole cluster, deploy/default-deny-cilium.yaml.
func (p NetworkPolicy) OutlivesNamespace() bool { return p == NetworkPolicyCilium }

// Kubernetes reports whether a NetworkPolicy of networking.k8s.io is wanted, or may be.
func (p NetworkPolicy) Kubernetes() bool { return p != NetworkPolicyCilium }

// IsolationCheck is when the operator tests whether network policies are
// enforced.
type IsolationCheck string

// The times of the check.
const (
	IsolationCheckOff     IsolationCheck = "off"
	IsolationCheckStartup IsolationCheck = "startup"
	// IsolationCheckInterval is at startup and every hour after it.
	IsolationCheckInterval IsolationCheck = "interval"
)

// WithdrawalPolicy decides whether live instances whose Challenge is deleted keep running.
type WithdrawalPolicy string

// The withdrawal policies.
const (
	WithdrawalKeep WithdrawalPolicy = "Keep"
	WithdrawalStop WithdrawalPolicy = "Stop"
)

// RefPolicy is the namespaces whose Challenges an instance may use.
type RefPolicy string

// The policies of references.
const (
	// RefTrustedNamespace trusts the platform: instances of CHALLENGE_NAMESPACE may use every Challenge, other instances
	// only the Challenges of their own namespace.
	RefTrustedNamespace    RefPolicy = "TrustedNamespace"
	RefAny                 RefPolicy = "Any"
	RefConfiguredNamespace RefPolicy = "ConfiguredNamespace"
	RefSameNamespace       RefPolicy = "SameNamespace"
)

// MayUse reports whether instances and checks of a namespace may use Challenges of another one. A reference that it refuses is a
// problem of the instance, and never an empty result.
func (c Challenge) MayUse(from, target string) bool {
	switch c.RefPolicy {
	case RefConfiguredNamespace:
		return target == c.Namespace
	case RefSameNamespace:
		return target == from
	case RefTrustedNamespace:
		return target == from || from == c.Namespace
	default:
		return true
	}
}

// Trusts reports whether owner IDs belong to a namespace: its instances go before other namespaces' instances of the same owner.
func (c Challenge) Trusts(namespace string) bool {
	if len(c.InstanceNamespaces) > 0 {
		return slices.Contains(c.InstanceNamespaces, namespace)
	}
	return namespace == c.Namespace
}

// defaultCapabilities are the capabilities that authors may add by default: the default set of a
// container runtime, and capabilities for network and debugging challenges.
const defaultCapabilities = "AUDIT_WRITE,CHOWN,DAC_OVERRIDE,FOWNER,FSETID,KILL,MKNOD,NET_ADMIN,NET_BIND_SERVICE,NET_RAW,SETFCAP,SETGID,SETPCAP,SETUID,SYS_CHROOT,SYS_PTRACE"

// AllCapabilities among the allowed ones allows every capability.
const AllCapabilities = "ALL"

// noCapabilities as the only entry allows none. An empty variable means its
// default.
const noCapabilities = "NONE"

// Section returns the settings, which are read into b.
func (b *Berg) Section() settings.Section {
	return settings.Section{
		Title:    "Challenge instances (berg.norelect.ch)",
		Check:    b.check,
		Warnings: b.warnings,
		Settings: []settings.Setting{
			settings.New("CHALLENGE_NAMESPACE", "berg", settings.Name(&b.Challenge.Namespace, validation.IsDNS1123Label), "Namespace of a Challenge when a ChallengeInstance does not name one."),
			settings.New("CHALLENGE_DOMAIN", "challenges.example.com", settings.Name(&b.Challenge.Domain, domain), "Domain under which instances are reached: <uuid>.<domain> for routes, <domain>:<port> for public ports."),
			settings.New("CHALLENGE_HTTP_PORT", "80", settings.Port(&b.Challenge.HTTPPort), "Port of the Gateway's HTTP listener, as players see it."),
			settings.New("CHALLENGE_HTTP_TLS", "auto", settings.Enum(&b.Challenge.HTTPTLS, HTTPTLSAuto, HTTPTLSTrue, HTTPTLSFalse), "Whether players use HTTPS at that listener; status.services shows the scheme. true: HTTPS. false: plain HTTP. auto: plain HTTP at port 80, HTTPS at any other. Port 80 is plain HTTP in any case."),
			settings.New("CHALLENGE_TLS_PORT", "443", settings.Port(&b.Challenge.TLSPort), "Port of the Gateway's TLS listener, as players see it."),
			settings.New("GATEWAY_NAME", "berg-gateway", settings.Name(&b.Gateway.Name, validation.IsDNS1123Subdomain), "Name of the Gateway that routes attach to."),
			settings.New("GATEWAY_NAMESPACE", "berg", settings.Name(&b.Gateway.Namespace, validation.IsDNS1123Label), "Namespace of that Gateway."),
			settings.New("CHALLENGE_HTTP_LISTENER_NAME", "http", settings.Name(&b.Gateway.HTTPListener, validation.IsDNS1123Subdomain), "Listener of the Gateway for ports of type publicHttpRoute."),
			settings.New("CHALLENGE_TLS_LISTENER_NAME", "tls", settings.Name(&b.Gateway.TLSListener, validation.IsDNS1123Subdomain), "Listener of the Gateway for ports of type publicTlsRoute."),
			settings.New("GATEWAY_DATAPLANE_NAMESPACES", "", settings.Names(&b.Gateway.DataplaneNamespaces), "Comma-separated namespaces of the Gateway's proxies. Empty: any pod outside challenge instances, and Cilium's own Gateway, may reach an instance."),
			settings.New("NETWORK_POLICY", "auto", settings.Enum(&b.Challenge.NetworkPolicy, NetworkPolicyAuto, NetworkPolicyCilium, NetworkPolicyKubernetes, NetworkPolicyBoth), "Which policies isolate an instance: cilium, kubernetes (networking.k8s.io, for other network plugins), both, or auto: cilium where the DaemonSet cilium in CILIUM_NAMESPACE has a ready pod, both where Cilium's CRDs exist without such a pod, kubernetes elsewhere."),
			settings.New("CILIUM_NAMESPACE", "kube-system", settings.Name(&b.Challenge.CiliumNamespace, validation.IsDNS1123Label), "Namespace of Cilium's agents, for NETWORK_POLICY=auto. Only administrators of the cluster may write there."),
			settings.New("CLUSTER_NODE_CIDRS", "", settings.Prefixes(&b.Challenge.NodeCIDRs), "Comma-separated address ranges of the nodes. Used by the policies of kubernetes, which cannot name nodes otherwise."),
			settings.New("CLUSTER_POD_CIDRS", "", settings.Prefixes(&b.Challenge.PodCIDRs), "Comma-separated address ranges of pods and Services. Used by the policies of kubernetes, needed where these are public addresses."),
			settings.New("CHALLENGE_OUTBOUND_PRIVATE", "false", settings.Bool(&b.Challenge.OutboundPrivate), "Whether allowOutboundTraffic also opens private networks and cloud metadata, and not only the internet."),
			settings.New("CHALLENGE_INSTANCE_TIMEOUT", "2h", settings.Duration(&b.Challenge.Timeout), "Lifetime of an instance whose spec names none, for example 90m or 2h."),
			settings.New("CHALLENGE_MAX_LIFETIME", "", settings.Optional(settings.Duration(&b.Challenge.MaxLifetime)), "Maximum lifetime of an instance. It limits what the spec asks for. Empty: no limit."),
			settings.New("CHALLENGE_TIMEOUT_FROM", "start", settings.Enum(&b.Challenge.TimeoutFrom, TimeoutFromStart, TimeoutFromReady), "When the lifetime begins. start: when the operator starts the instance. ready: when it is ready for the first time, at the latest at CHALLENGE_START_DEADLINE, so that waiting for a node or an image costs the player no time."),
			settings.New("CHALLENGE_START_DEADLINE", "", settings.Optional(settings.Duration(&b.Challenge.StartDeadline)), "Time after which an instance that never became ready is Failed. Empty: it may keep starting until it expires."),
			settings.New("CHALLENGE_CONNECT_TIMEOUT", "3s", connectTimeout(&b.Challenge.ConnectTimeout), "How long an instance waits, before it is Running, until its public TCP ports accept a connection at their node, where the operator reaches the nodes. 1s to 30s, or 0s: it does not wait."),
			settings.New("CHALLENGE_MAX_INSTANCES", "0", settings.Int(&b.Challenge.MaxInstances, 0, 100000), "How many instances may exist at the same time. Others wait in Pending, in the order of their creation. 0: no limit."),
			settings.New("CHALLENGE_NAMESPACE_MAX_INSTANCES", "0", settings.Int(&b.Challenge.NamespaceMaxInstances, 0, 100000), "How many instances of one namespace may exist at the same time. Others wait in Pending. 0: no limit."),
			settings.New("SOURCE_MAX_INSTANCES", "0", settings.Int(&b.Challenge.SourceMaxInstances, 0, 100000), "How many instances of one source may exist at the same time. Others wait in Pending. The source is the user or team in the label berg.norelect.ch/source, for each namespace separately. 0: no limit."),
			settings.New("SOURCE_BUDGET", "0", settings.Int(&b.Challenge.SourceBudget, 0, 1000000), "What the instances of one source may cost together, by spec.cost of their Challenges. Others wait in Pending. 0: no limit."),
			settings.New("CHALLENGE_WARM_MAX_INSTANCES", "0", settings.Int(&b.Challenge.WarmMaxInstances, 0, 10000), "How many prepared instances, which spec.warm of Challenges asks for, may exist at the same time. They count for CHALLENGE_MAX_INSTANCES, and end when players wait for their slots. Needs the role of config/berg/warm. 0: none is prepared."),
			settings.New("CHALLENGE_WARM_MAX_STARTING", "8", settings.Int(&b.Challenge.WarmMaxStarting, 1, 10000), "How many prepared instances may start at the same time, until their containers are ready. More take CPU time of the nodes from the starts of players. A rush of players who each take one over needs as many as come while one boots."),
			settings.New("CHALLENGE_WITHDRAWAL_POLICY", "Keep", settings.Enum(&b.Challenge.WithdrawalPolicy, WithdrawalKeep, WithdrawalStop), "What happens to live instances when their Challenge is deleted: Keep lets them run, Stop deletes them."),
			settings.New("ORPHAN_GRACE_PERIOD", "", settings.Optional(settings.Duration(&b.Challenge.OrphanGracePeriod)), "How long a namespace is kept after its instance was removed without cleanup, because its finalizer was removed by hand. Then it is deleted. Empty: such namespaces are counted and never deleted."),
			settings.New("CHALLENGE_INSTANCE_NAMESPACES", "", settings.Names(&b.Challenge.InstanceNamespaces), "Comma-separated namespaces whose ChallengeInstances are started. An owner has one instance in the whole cluster, so name only namespaces of platforms that you trust: an instance in one keeps the owner's next one waiting in any other. Empty: all namespaces; an instance of another namespace ends when one of CHALLENGE_NAMESPACE needs its owner ID."),
			settings.New("CHALLENGE_REF_POLICY", "TrustedNamespace", settings.Enum(&b.Challenge.RefPolicy, RefTrustedNamespace, RefAny, RefConfiguredNamespace, RefSameNamespace), "Which Challenges an instance may use. TrustedNamespace: instances of CHALLENGE_NAMESPACE may use all, others those of their own namespace. Otherwise those of Any namespace, of the ConfiguredNamespace (CHALLENGE_NAMESPACE), or of the SameNamespace."),
			settings.New("CHALLENGE_ALLOWED_CAPABILITIES", defaultCapabilities, capabilities(&b.Challenge.AllowedCapabilities), "Comma-separated Linux capabilities that a Challenge may add. ALL allows all, NONE allows none. More than the default needs the exemption capabilities."),
			settings.New("CHALLENGE_CPU_LIMIT", "1000m", settings.Cores(&b.Challenge.CPULimit), "CPU limit of a container whose Challenge does not set one."),
			settings.New("CHALLENGE_CPU_REQUEST", "100m", settings.Cores(&b.Challenge.CPURequest), "CPU request of a container whose Challenge does not set one."),
			settings.New("CHALLENGE_MEMORY_LIMIT", "512Mi", settings.Amount(&b.Challenge.MemoryLimit), "Memory limit of a container whose Challenge does not set one."),
			settings.New("CHALLENGE_MEMORY_REQUEST", "128Mi", settings.Amount(&b.Challenge.MemoryRequest), "Memory request of a container whose Challenge does not set one."),
			settings.New("CHALLENGE_EPHEMERAL_STORAGE_LIMIT", "1Gi", settings.Bytes(&b.Challenge.EphemeralStorageLimit), "How much a container may write to the disk of its node, including its log. A pod that writes more is evicted. 0: no limit."),
			settings.New("CHALLENGE_EPHEMERAL_STORAGE_REQUEST", "64Mi", settings.Bytes(&b.Challenge.EphemeralStorageRequest), "Ephemeral storage request of a container. 0: none, for nodes that do not report the size of their disk."),
			settings.New("CHALLENGE_SECCOMP_PROFILE", string(corev1.SeccompProfileTypeRuntimeDefault), settings.Enum(&b.Challenge.SeccompProfile, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined), "Which system calls containers may make: RuntimeDefault, or Unconfined for all, which needs the Pod Security level privileged and, without user namespaces, the exemption seccomp-unconfined."),
			settings.New("CHALLENGE_USER_NAMESPACES", "auto", settings.Enum(&b.Challenge.UserNamespaces, UserNamespacesAuto, UserNamespacesTrue, UserNamespacesFalse), "Whether pods run in a user namespace (hostUsers: false), so that root in a container is unprivileged on the node. true: always; the kernel and the container runtime of every node must support it. auto: pods without a RuntimeClass, while every node that takes pods supports it; none while the operator may not watch nodes (config/berg/nodes). false: never."),
			settings.New("CHALLENGE_NESTED_SECCOMP_PROFILE", "", settings.Optional(nestedProfile(&b.Challenge.NestedSeccompProfile)), "Which system calls containers with sandbox: nested may make: a file below the kubelet's folder seccomp on every node, such as berg-nested.json, or Unconfined for all. Their pods run in a user namespace, which a node must support, and the operator must be permitted to watch nodes (config/berg/nodes). Empty: Challenges with sandbox: nested are refused."),
			settings.New("CHALLENGE_EGRESS_BANDWIDTH", "10M", bandwidth(&b.Challenge.EgressBandwidth), "Bits per second that a pod may send if its Challenge does not set a limit."),
			settings.New("CHALLENGE_INGRESS_BANDWIDTH", "10M", bandwidth(&b.Challenge.IngressBandwidth), "Bits per second that a pod may receive if its Challenge does not set a limit."),
			settings.New("CHALLENGE_IMAGE_PULL_POLICY", "IfNotPresent", settings.Enum(&b.Challenge.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever), "When nodes pull the images of challenges: Always, IfNotPresent or Never."),
			settings.New("CHALLENGE_RUNTIME_CLASS_NAME", "", settings.Optional(settings.Name(&b.Challenge.RuntimeClassName, validation.IsDNS1123Subdomain)), "RuntimeClass of pods whose Challenge does not set one, for example gvisor. Empty: the default of the cluster."),
			settings.New("PULL_SECRET_NAME", "", settings.Optional(settings.Name(&b.Challenge.PullSecretName, validation.IsDNS1123Subdomain)), "Secret of type kubernetes.io/dockerconfigjson in the operator's namespace that is copied to every instance. Empty: none."),
			settings.New("CHALLENGE_ADDITIONAL_HEADLESS_SERVICE", "false", settings.Bool(&b.Challenge.HeadlessService), "Whether every container also gets a headless Service <hostname>-headless."),
			settings.New("CLUSTER_DOMAIN", "cluster.local", settings.Name(&b.Challenge.ClusterDomain, validation.IsDNS1123Subdomain), "DNS domain of the cluster."),
			settings.New("ISOLATION_CHECK", "startup", settings.Enum(&b.IsolationCheck, IsolationCheckOff, IsolationCheckStartup, IsolationCheckInterval), "When a pod tests whether the cluster enforces network policies: off, startup, or interval (at startup and every hour)."),
			settings.New("CHECK_CONCURRENCY", "0", settings.Int(&b.Check.Concurrency, 0, 100), "How many ChallengeChecks run at the same time, each with an instance and a solver. 0: ChallengeChecks are ignored."),
			settings.New("IMAGE_PREPULL_LEAD", "", settings.Optional(settings.Duration(&b.Prepull.Lead)), "How long before its hideUntil the images of a Challenge are pulled on every node that may run them, for example 30m. Empty: images are not pulled ahead, and spec.prepull is ignored."),
			settings.New("IMAGE_PREPULL_CONCURRENCY", "4", settings.Int(&b.Prepull.Concurrency, 1, 1000), "How many images are pulled ahead at the same time on all nodes together, with at most one on each node."),
			settings.New("RECORD_RETENTION", "", settings.Optional(settings.Duration(&b.Record.Retention)), "How long the ChallengeInstanceRecord of an ended instance is kept, for example 24h. Empty: no records are written."),
			settings.New("RECORD_NAMESPACE", "berg-records", settings.Name(&b.Record.Namespace, validation.IsDNS1123Label), "Namespace of the ChallengeInstanceRecords. Users who may read them there can read what containers wrote."),
			settings.New("RECORD_LIMIT", "1000", settings.Int(&b.Record.Limit, 1, 100000), "Maximum number of ChallengeInstanceRecords. The oldest is deleted first."),
			settings.New("RECORD_SIZE_LIMIT", "128Mi", settings.Bytes(&b.Record.Size), "Maximum size of all ChallengeInstanceRecords together in the storage of the API server. The oldest is deleted first."),
		},
	}
}

// check compares settings with each other. Settings that could not be parsed are zero and valid here. So each comparison leaves
// out the zero value, unless that is a valid text of its setting.
func (b *Berg) check() []error {
	var errs []error
	if b.Challenge.CPURequest.Cmp(b.Challenge.CPULimit) > 0 && !b.Challenge.CPULimit.IsZero() {
		errs = append(errs, errors.New("CHALLENGE_CPU_REQUEST: must not be above CHALLENGE_CPU_LIMIT"))
	}
	if b.Challenge.MemoryRequest.Cmp(b.Challenge.MemoryLimit) > 0 && !b.Challenge.MemoryLimit.IsZero() {
		errs = append(errs, errors.New("CHALLENGE_MEMORY_REQUEST: must not be above CHALLENGE_MEMORY_LIMIT"))
	}
	if b.Challenge.EphemeralStorageRequest.Cmp(b.Challenge.EphemeralStorageLimit) > 0 && !b.Challenge.EphemeralStorageLimit.IsZero() {
		errs = append(errs, errors.New("CHALLENGE_EPHEMERAL_STORAGE_REQUEST: must not be above CHALLENGE_EPHEMERAL_STORAGE_LIMIT"))
	}
	if b.Prepull.Lead > 0 && b.Challenge.ImagePullPolicy == corev1.PullNever {
		errs = append(errs, errors.New("IMAGE_PREPULL_LEAD: must be empty while CHALLENGE_IMAGE_PULL_POLICY is Never: no node would pull anything"))
	}
	if b.Challenge.HTTPPort == b.Challenge.TLSPort && b.Challenge.HTTPPort != 0 {
		errs = append(errs, errors.New("CHALLENGE_TLS_PORT: must differ from CHALLENGE_HTTP_PORT"))
	}
	if b.Gateway.HTTPListener == b.Gateway.TLSListener && b.Gateway.HTTPListener != "" {
		errs = append(errs, errors.New("CHALLENGE_TLS_LISTENER_NAME: must differ from CHALLENGE_HTTP_LISTENER_NAME: no listener serves HTTPRoutes and TLSRoutes"))
	}
	if b.Challenge.TimeoutFrom == TimeoutFromReady && b.Challenge.StartDeadline == 0 {
		errs = append(errs, errors.New("CHALLENGE_TIMEOUT_FROM: ready needs CHALLENGE_START_DEADLINE: an instance that is never ready would not expire"))
	}
	return errs
}

// The default ports of HTTP and HTTPS.
const (
	plainWebPort  = 80
	secureWebPort = 443
)

// HTTPTLS says whether players use HTTPS at Challenge.HTTPPort.
type HTTPTLS string

// The values of HTTPTLS. HTTPTLSAuto is plain HTTP at the port of HTTP, and HTTPS at any other.
const (
	HTTPTLSAuto  HTTPTLS = "auto"
	HTTPTLSTrue  HTTPTLS = "true"
	HTTPTLSFalse HTTPTLS = "false"
)

// UserNamespaces says which pods run in a user namespace.
type UserNamespaces string

// The values of UserNamespaces. UserNamespacesAuto becomes UserNamespacesPlain while every node supports it, and else
// UserNamespacesFalse. UserNamespacesPlain is not to be set: pods without a RuntimeClass, whose runtime may be one without support.
const (
	UserNamespacesAuto  UserNamespaces = "auto"
	UserNamespacesTrue  UserNamespaces = "true"
	UserNamespacesFalse UserNamespaces = "false"
	UserNamespacesPlain UserNamespaces = "plain"
)

// On returns the setting for a cluster, given whether all of its nodes support user namespaces.
func (u UserNamespaces) On(supported bool) UserNamespaces {
	switch {
	case u != UserNamespacesAuto:
		return u
	case supported:
		return UserNamespacesPlain
	default:
		return UserNamespacesFalse
	}
}

// Use reports whether a pod runs in a user namespace. class is its RuntimeClass.
func (u UserNamespaces) Use(class string) bool {
	return u == UserNamespacesTrue || u == UserNamespacesPlain && class == ""
}

// UsesHTTPS reports whether players use HTTPS at HTTPPort. Every browser uses plain HTTP at port 80.
func (d Defaults) UsesHTTPS() bool {
	return d.HTTPPort != plainWebPort && d.HTTPTLS != HTTPTLSFalse
}

// warnings returns valid combinations that are probably not intended.
func (b *Berg) warnings() []string {
	switch {
	case b.Challenge.HTTPTLS == HTTPTLSTrue && b.Challenge.HTTPPort == plainWebPort:
		return []string{"CHALLENGE_HTTP_TLS=true has no effect while CHALLENGE_HTTP_PORT is 80, the port of plain HTTP. If the Gateway serves HTTPS at another port, such as 443, set that port; if it serves plain HTTP, set CHALLENGE_HTTP_TLS=auto"}
	case !b.Challenge.UsesHTTPS() && b.Challenge.HTTPPort == secureWebPort:
		return []string{"CHALLENGE_HTTP_TLS=false and CHALLENGE_HTTP_PORT=443: players are sent to plain HTTP at the port of HTTPS. If the Gateway serves HTTPS there, set CHALLENGE_HTTP_TLS=true"}
	}
	return nil
}

// domain leaves space for "<uuid>." in front: 253 - 37.
func domain(s string) []string {
	if len(s) > 216 {
		return []string{"must be no more than 216 characters"}
	}
	return validation.IsDNS1123Subdomain(s)
}

// capabilityName is a capability as Kubernetes writes it.
var capabilityName = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// capabilities parses names with or without CAP_, and stores them without it. noCapabilities gives an empty list, which allows
// none.
func capabilities(to *[]string) settings.Value {
	return settings.Func(func(text string) error {
		*to = nil
		if text == noCapabilities {
			return nil
		}
		for part := range settings.Parts(text) {
			part = strings.TrimPrefix(part, "CAP_")
			if !capabilityName.MatchString(part) || part == noCapabilities {
				return fmt.Errorf("%q: must be the name of a capability such as NET_ADMIN, ALL or, alone, NONE", part)
			}
			*to = append(*to, part)
		}
		return nil
	}).In(settings.Form{Type: settings.List})
}

// Unconfined as NestedSeccompProfile stands for no profile.
const Unconfined = string(corev1.SeccompProfileTypeUnconfined)

// nestedProfile accepts a path that stays below the kubelet's folder, because the kubelet joins it with that folder.
func nestedProfile(to *string) settings.Value {
	return settings.Func(func(text string) error {
		*to = text
		if text != Unconfined && (!strings.HasSuffix(text, ".json") || !filepath.IsLocal(text) || path.Clean(text) != text) {
			return fmt.Errorf("%q: must be Unconfined or the path of a file such as berg-nested.json, as seen from the kubelet's folder seccomp", text)
		}
		return nil
	})
}

// maxConnectTimeout keeps Running from being late for long.
const maxConnectTimeout = 30 * time.Second

// connectTimeout accepts 0, which is no wait, and otherwise one second to maxConnectTimeout.
func connectTimeout(to *time.Duration) settings.Value {
	return settings.Func(func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d != 0 && (d < time.Second || d > maxConnectTimeout) {
			return fmt.Errorf("must be a duration from 1s to %s, or 0s", maxConnectTimeout)
		}
		*to = d
		return nil
	})
}

// bandwidth accepts the values of the CNI's bandwidth plugin: 1k to 1P bits per second.
func bandwidth(to *string) settings.Value {
	return settings.Func(func(text string) error {
		*to = text
		return Bandwidth(text)
	}).In(settings.Form{Type: settings.Quantity})
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
