package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	kitsettings "github.com/bergctf/berg-operator/internal/kit/settings"
)

// SettingNames are the settings of the operator that doctor, lint, plan and status use. make generate writes the
// defaults of all settings into zz_generated.defaults.go, because the plugin may not import the operator.
var SettingNames = []string{
	"CHALLENGE_DOMAIN", "CHALLENGE_HTTP_PORT", "CHALLENGE_HTTP_TLS", "CHALLENGE_TLS_PORT",
	"GATEWAY_NAME", "GATEWAY_NAMESPACE", "CHALLENGE_HTTP_LISTENER_NAME", "CHALLENGE_TLS_LISTENER_NAME",
	"NETWORK_POLICY", "ISOLATION_CHECK", "PULL_SECRET_NAME", "LEADER_ELECT", "LEASE_NAME",
	"CHALLENGE_CPU_REQUEST", "CHALLENGE_CPU_LIMIT", "CHALLENGE_MEMORY_REQUEST", "CHALLENGE_MEMORY_LIMIT",
	"CHALLENGE_EPHEMERAL_STORAGE_REQUEST", "CHALLENGE_INSTANCE_TIMEOUT", "CHALLENGE_ADDITIONAL_HEADLESS_SERVICE",
	"CHALLENGE_MAX_INSTANCES", "RECORD_NAMESPACE", "CHALLENGE_ALLOWED_CAPABILITIES", "CHALLENGE_START_DEADLINE",
	"CHALLENGE_NESTED_SECCOMP_PROFILE", "CHALLENGE_NAMESPACE", "RECORD_RETENTION", "CHECK_CONCURRENCY", "IMAGE_PREPULL_LEAD",
	"CHALLENGE_WARM_MAX_INSTANCES",
}

// Setting returns the value that the operator uses: from an option of its Deployment, a variable, the ConfigMap, or the default. It is not
// known if it comes from an object that could not be read.
func (s Survey) Setting(name string) (value string, known bool) {
	value, _, known = s.origin(name)
	return value, known
}

// Where settings come from.
const (
	fromOptions   = "options of the Deployment"
	fromVariables = "variables of the Deployment"
	fromConfigMap = "the ConfigMap " + kitsettings.ConfigMap
	fromDefaults  = "defaults"
)

// origin returns the value of a setting with its source.
func (s Survey) origin(name string) (value, source string, known bool) {
	return s.originIn(s.container(), s.Sources[name], name)
}

// originIn is origin for a container with a value from other objects. The order is the same as in settings.LoadShared: option,
// variable, ConfigMap, default.
func (s Survey) originIn(c *corev1.Container, given, name string) (value, source string, known bool) {
	value = given
	if c != nil {
		if option, found := kitsettings.FindOption(c.Args, name); found {
			return option, fromOptions, true
		}
		// The last one of a name counts.
		for _, e := range slices.Backward(c.Env) {
			if e.Name == name {
				if e.ValueFrom != nil {
					return findDefault(name), fromVariables, false
				}
				value = e.Value
				break
			}
		}
	}
	value = strings.TrimSpace(value)
	shared := strings.TrimSpace(s.Shared[name])
	switch {
	case value != "" && value != findDefault(name):
		return value, fromVariables, true
	case shared != "": // a variable with the default counts as not set
		return shared, fromConfigMap, len(s.Unread) == 0
	default:
		return findDefault(name), fromDefaults, len(s.Unread) == 0
	}
}

// findDefault returns the default of a setting of any program.
func findDefault(name string) string {
	if value, own := Defaults[name]; own {
		return value
	}
	return programDefaults[name]
}

// container is the operator's container, nil if it was not found.
func (s Survey) container() *corev1.Container {
	if s.Deployment == nil || len(s.Deployment.Spec.Template.Spec.Containers) == 0 {
		return nil
	}
	return &s.Deployment.Spec.Template.Spec.Containers[0]
}

// setting is Setting with the default for values that are not known; settings reports them.
func (s Survey) setting(name string) string {
	value, _ := s.Setting(name)
	return value
}

// settings reports the settings whose values are not known.
func settings(s Survey) []Result {
	var guessed []string
	if c := s.container(); c != nil {
		for _, e := range c.Env {
			if _, looked := Defaults[e.Name]; looked && e.ValueFrom != nil {
				guessed = append(guessed, e.Name)
			}
		}
	}
	var texts []string
	if len(guessed) > 0 {
		texts = append(texts, fmt.Sprintf("the values of %s come from other objects", strings.Join(guessed, ", ")))
	}
	if len(s.Unread) > 0 {
		texts = append(texts, fmt.Sprintf("the operator takes settings from %s, which you may not read", strings.Join(s.Unread, ", ")))
	}
	var results []Result
	if len(texts) > 0 {
		results = result("settings", console.Unknown, strings.Join(texts, "; ")+": the checks below use the defaults", askAdministrator)
	}
	for _, program := range slices.Sorted(maps.Keys(s.Refused)) {
		results = append(results, result("settings", console.Problem, program+" does not start: "+s.Refused[program],
			"Correct the setting in its Deployment, or in the ConfigMap "+kitsettings.ConfigMap+".")...)
	}
	return append(results, settingSources(s)...)
}

// replaces reports whether a container has another value of a setting than the ConfigMap and the default.
func (s Survey) replaces(c *corev1.Container, name string) bool {
	_, source, _ := s.originIn(c, "", name)
	return source == fromOptions || source == fromVariables
}

// settingSources reports which settings options and variables give, which the ConfigMap, which of both, and names that no program knows.
func settingSources(s Survey) []Result {
	if err := kitsettings.CheckNames(s.Shared); err != nil {
		return result("settings", console.Problem, "running programs keep their former settings, and new ones do not start: "+strings.ReplaceAll(err.Error(), "\n", "; "),
			fmt.Sprintf("kubectl -n %s edit configmap %s", s.Deployment.Namespace, kitsettings.ConfigMap))
	}
	if s.SharedProblem != "" {
		return result("settings", console.Problem, "programs keep their former settings, and do not start again with those of the ConfigMap: "+s.SharedProblem,
			fmt.Sprintf("kubectl -n %s edit configmap %s", s.Deployment.Namespace, kitsettings.ConfigMap))
	}
	bySource := map[string][]string{}
	var replaced []string
	for _, name := range slices.Sorted(maps.Keys(Defaults)) {
		_, source, _ := s.origin(name)
		bySource[source] = append(bySource[source], name)
		if s.Shared[name] != "" && (source == fromOptions || source == fromVariables) {
			replaced = append(replaced, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Shared)) {
		if _, own := Defaults[name]; own {
			continue
		}
		// A setting of the platform API, or of the gate.
		if s.replaces(s.API, name) || s.replaces(s.Gate, name) {
			replaced = append(replaced, name)
		} else {
			bySource[fromConfigMap] = append(bySource[fromConfigMap], name)
		}
	}
	var texts []string
	for _, source := range []string{fromOptions, fromVariables, fromConfigMap} {
		if len(bySource[source]) > 0 {
			texts = append(texts, fmt.Sprintf("from %s: %s", source, strings.Join(bySource[source], ", ")))
		}
	}
	switch text := strings.Join(texts, "; "); {
	case len(replaced) > 0:
		return result("settings", console.Warning, fmt.Sprintf("%s; the Deployment replaces what the ConfigMap says of %s", text, strings.Join(replaced, ", ")),
			"Remove them from one of both.")
	case text != "":
		return result("settings", console.OK, text, "")
	default:
		return nil
	}
}
