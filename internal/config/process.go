// Package config says what an administrator can set: for the process in this file, and for
// each family in one of its own.
package config

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Process is how the operator itself runs.
type Process struct {
	Namespace               string   // its own: its lease lives there, and what it reads for its families
	EnabledAPIs             []string // groups of the families that take part
	MetricsBindAddress      string   // "0": not served
	MetricsSecure           bool
	HealthProbeBindAddress  string
	PprofBindAddress        string // "": not served
	WebhookBindAddress      string // "0": not served
	WebhookCertDir          string
	LeaderElect             bool
	LogLevel                int // verbosity: 0 is info
	MaxConcurrentReconciles int
	UpgradeHoldMax          time.Duration
	OperatorConditionName   string // "": not installed by OLM
	TerminationLog          string
}

// DefaultTerminationLog is Kubernetes' own default of terminationMessagePath.
const DefaultTerminationLog = "/dev/termination-log"

// Section returns the settings, which are read into p. apis are the groups of all families.
func (p *Process) Section(apis []string) settings.Section {
	return settings.Section{
		Title: "The operator itself",
		Settings: []settings.Setting{
			{
				Name: "POD_NAMESPACE", Default: "berg-operator-system",
				Help:  "Namespace of the operator itself: its lease and the pull secret live there.",
				Value: settings.Name(&p.Namespace, validation.IsDNS1123Label),
			},
			{
				Name: "ENABLED_APIS", Default: "",
				Help:  "Comma-separated API groups whose resources the operator works on. It does not watch those of the others. Empty: all groups.",
				Value: settings.SomeOf(&p.EnabledAPIs, apis...),
			},
			{
				Name: "METRICS_BIND_ADDRESS", Default: ":8443",
				Help:  "Address of the metrics, 0 to serve none.",
				Value: settings.Address(&p.MetricsBindAddress, "0"),
			},
			{
				Name: "METRICS_SECURE", Default: "true",
				Help:  "Whether metrics need TLS and a token that may get /metrics.",
				Value: settings.Bool(&p.MetricsSecure),
			},
			{
				Name: "HEALTH_PROBE_BIND_ADDRESS", Default: ":8081",
				Help:  "Address of /healthz and /readyz.",
				Value: settings.Address(&p.HealthProbeBindAddress, ""),
			},
			{
				Name: "PPROF_BIND_ADDRESS", Default: "",
				Help:  "Address of the profiles of net/http/pprof, for example 127.0.0.1:6060: anyone who reaches it may read them. Empty: none.",
				Value: settings.Address(&p.PprofBindAddress, ""),
			},
			{
				Name: "WEBHOOK_BIND_ADDRESS", Default: ":9443",
				Help:  "Address of the admission webhooks, 0 to serve none. They are served where their configuration is installed.",
				Value: settings.Address(&p.WebhookBindAddress, "0"),
			},
			{
				Name: "WEBHOOK_CERT_DIR", Default: "/tmp/k8s-webhook-server/serving-certs",
				Help:  "Directory with tls.crt and tls.key of the webhooks, as the Operator Lifecycle Manager or cert-manager mount it. Where there are none, the operator makes and renews a certificate of its own.",
				Value: settings.Path(&p.WebhookCertDir),
			},
			{
				Name: "LEADER_ELECT", Default: "true",
				Help:  "Whether replicas elect the one that works.",
				Value: settings.Bool(&p.LeaderElect),
			},
			{
				Name: "LOG_LEVEL", Default: "0",
				Help: "How much is logged: 0 what an administrator needs, 1 each reconciliation, 2 each write, 6 each request.",
				// From 8 on client-go logs the body of every request, and with it the flags.
				Value: settings.Int(&p.LogLevel, 0, 7),
			},
			{
				Name: "MAX_CONCURRENT_RECONCILES", Default: "32",
				Help:  "How many resources of each kind are worked on at the same time. Expiries and deletions of instances have workers of their own, half as many each.",
				Value: settings.Int(&p.MaxConcurrentReconciles, 1, 1000),
			},
			{
				Name: "UPGRADE_HOLD_MAX", Default: "5m",
				Help:  "How long work that a restart would delay, such as instances being created or removed, may hold up an upgrade by the Operator Lifecycle Manager.",
				Value: settings.Duration(&p.UpgradeHoldMax),
			},
			{
				Name: "OPERATOR_CONDITION_NAME", Default: "",
				Help:  "OperatorCondition that holds up an upgrade, in the operator's namespace. The Operator Lifecycle Manager sets it. Empty: none.",
				Value: settings.OptionalName(&p.OperatorConditionName),
			},
			{
				Name: "TERMINATION_LOG", Default: DefaultTerminationLog,
				Help:  "File from which Kubernetes reads why the operator stopped. Nothing is written if it does not exist.",
				Value: settings.Path(&p.TerminationLog),
			},
		},
	}
}
