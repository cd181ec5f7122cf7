package config

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Process configures the operator itself. The help of each setting describes its field.
type Process struct {
	Namespace               string   // its own, with its lease and the objects that it reads for its families
	EnabledAPIs             []string // API groups of the enabled families; nil: the installed families
	MetricsBindAddress      string   // "0": not served
	MetricsSecure           bool
	HealthProbeBindAddress  string
	PprofBindAddress        string // "": not served
	WebhookBindAddress      string // "0": not served
	WebhookCertDir          string
	LeaderElect             bool
	LeaseName               string // in its own namespace
	LogLevel                int    // verbosity: 0 is info
	MaxConcurrentReconciles int
	UpgradeHoldMax          time.Duration
	OperatorConditionName   string // "": not installed by OLM
	TerminationLog          string
}

// DefaultLeaseName is the Lease that the replicas of an installation compete for.
const DefaultLeaseName = "berg-operator.berg.norelect.ch"

// DefaultTerminationLog is Kubernetes' own default of terminationMessagePath.
const DefaultTerminationLog = "/dev/termination-log"

// Section returns the settings, which are read into p. apis are the groups of all families. An empty EnabledAPIs is resolved by
// the operator, against the API groups that the cluster serves.
func (p *Process) Section(apis []string) settings.Section {
	return settings.Section{
		Title: "The operator itself",
		Settings: []settings.Setting{
			settings.New("POD_NAMESPACE", "berg-operator-system", settings.Name(&p.Namespace, validation.IsDNS1123Label), "Namespace of the operator itself, with its lease and the pull secret."),
			settings.New("ENABLED_APIS", "", settings.EnumList(&p.EnabledAPIs, apis...), "Comma-separated API groups whose resources the operator reconciles. It does not watch the resources of other groups. Empty: the groups that are installed, with their CRDs and the rights of the operator."),
			settings.New("METRICS_BIND_ADDRESS", ":8443", settings.Address(&p.MetricsBindAddress, "0"), "Address of the metrics. 0: metrics are not served."),
			settings.New("METRICS_SECURE", "true", settings.Bool(&p.MetricsSecure), "Whether metrics need TLS and a token that may get /metrics."),
			settings.New("HEALTH_PROBE_BIND_ADDRESS", ":8081", settings.Address(&p.HealthProbeBindAddress, ""), "Address of /healthz and /readyz."),
			settings.New("PPROF_BIND_ADDRESS", "", settings.Address(&p.PprofBindAddress, ""), "Address of the profiles of net/http/pprof, for example 127.0.0.1:6060. Every client that reaches it may read them. Empty: profiles are not served."),
			settings.New("WEBHOOK_BIND_ADDRESS", ":9443", settings.Address(&p.WebhookBindAddress, "0"), "Address of the admission webhooks. 0: webhooks are not served. They are served only if their configuration is installed."),
			settings.New("WEBHOOK_CERT_DIR", "/tmp/k8s-webhook-server/serving-certs", settings.Path(&p.WebhookCertDir), "Directory with tls.crt and tls.key of the webhooks, as the Operator Lifecycle Manager or cert-manager mount it. If the files do not exist, the operator issues and renews its own certificate."),
			settings.New("LEADER_ELECT", "true", settings.Bool(&p.LeaderElect), "Whether replicas elect a leader. Only the leader reconciles."),
			settings.New("LEASE_NAME", DefaultLeaseName, settings.Name(&p.LeaseName, validation.IsDNS1123Subdomain), "Lease in the operator's namespace that replicas compete for. Two operators in one namespace need different ones, each with the right to write its own."),
			// From 8 on client-go logs the body of every request, and with it the flags.
			settings.New("LOG_LEVEL", "0", settings.Int(&p.LogLevel, 0, 7), "Verbosity of the log: 0 what an administrator needs, 1 each reconciliation, 2 each write, 6 each request."),
			settings.New("MAX_CONCURRENT_RECONCILES", "32", settings.Int(&p.MaxConcurrentReconciles, 1, 1000), "How many resources of each kind are reconciled at the same time. Half as many more end instances that expire."),
			settings.New("UPGRADE_HOLD_MAX", "5m", settings.Duration(&p.UpgradeHoldMax), "How long work that a restart would delay, such as instances being created or removed, may delay an upgrade by the Operator Lifecycle Manager."),
			settings.New("OPERATOR_CONDITION_NAME", "", settings.Optional(settings.Name(&p.OperatorConditionName, validation.IsDNS1123Subdomain)), "OperatorCondition in the operator's namespace that delays an upgrade. The Operator Lifecycle Manager sets it. Empty: none."),
			settings.New("TERMINATION_LOG", DefaultTerminationLog, settings.Path(&p.TerminationLog), "File from which Kubernetes reads why the operator stopped. Nothing is written if it does not exist."),
		},
	}
}
