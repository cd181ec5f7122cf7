package config

import (
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Quix configures Quix environments. The help of each setting describes its field.
type Quix struct {
	NamespaceSuffix         string         // at most 19 characters, so that the name fits into 63
	IDPattern               *regexp.Regexp // nil: any ID is valid
	ServiceAccountName      string
	ServiceAccountNamespace string
	ClusterRoleName         string
	RoleViolationPolicy     RoleViolationPolicy
	PodSecurity             PodSecurityLevel
	CacheSyncPeriod         time.Duration
}

// PodSecurityLevel is a Pod Security Standard.
type PodSecurityLevel string

// The levels.
const (
	PodSecurityPrivileged PodSecurityLevel = "privileged"
	PodSecurityBaseline   PodSecurityLevel = "baseline"
	PodSecurityRestricted PodSecurityLevel = "restricted"
)

// RoleViolationPolicy decides whether live environments keep their bindings while their ClusterRole
// is dangerous.
type RoleViolationPolicy string

// The role violation policies.
const (
	RoleViolationUnbind RoleViolationPolicy = "Unbind"
	RoleViolationReport RoleViolationPolicy = "Report"
)

// Section returns the settings, which are read into q.
func (q *Quix) Section() settings.Section {
	return settings.Section{
		Title: "Environments (quix.io)",
		Settings: []settings.Setting{
			settings.New("NAMESPACE_SUFFIX", "-qdep", settings.Name(&q.NamespaceSuffix, namespaceSuffix), "Suffix of the namespace of a new Environment, after its ID, at most 19 characters. Existing environments keep their names."),
			settings.New("ENVIRONMENT_REGEX", "", settings.Pattern(&q.IDPattern), "Regular expression that the ID of a new Environment must match. Empty: any ID is valid."),
			settings.New("SERVICE_ACCOUNT_NAME", "quix-platform-account", settings.Name(&q.ServiceAccountName, validation.IsDNS1123Subdomain), "ServiceAccount of the platform, which gets access to every environment."),
			settings.New("SERVICE_ACCOUNT_NAMESPACE", "quix-environment", settings.Name(&q.ServiceAccountNamespace, validation.IsDNS1123Label), "Namespace of that ServiceAccount."),
			settings.New("CLUSTER_ROLE_NAME", "quix-platform-account-role", settings.Name(&q.ClusterRoleName, content.IsPathSegmentName), "ClusterRole with the rights of the platform in an environment. The operator must be allowed to bind it."),
			settings.New("ROLE_VIOLATION_POLICY", "Unbind", settings.Enum(&q.RoleViolationPolicy, RoleViolationUnbind, RoleViolationReport), "What happens to live environments while that ClusterRole lets the platform gain more rights: Unbind removes the platform's rights, Report only reports it."),
			settings.New("ENVIRONMENT_POD_SECURITY", string(PodSecurityBaseline), settings.Enum(&q.PodSecurity, PodSecurityPrivileged, PodSecurityBaseline, PodSecurityRestricted), "Pod Security level that the namespaces of environments enforce: privileged, baseline or restricted. With privileged the platform's account, which may create pods there, is root on the nodes."),
			settings.New("CACHE_SYNC_PERIOD", "10m", settings.Duration(&q.CacheSyncPeriod), "How often every Environment is reconciled even if nothing has changed."),
		},
	}
}

// maxSuffix leaves space for an ID of 44 characters in a name of 63.
const maxSuffix = 19

// namespaceSuffix checks it behind letters, because alone it may begin with a dash.
func namespaceSuffix(s string) []string {
	if len(s) > maxSuffix {
		return []string{fmt.Sprintf("must be no more than %d characters", maxSuffix)}
	}
	return validation.IsDNS1123Label("id" + s)
}
