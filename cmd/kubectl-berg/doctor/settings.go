package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	kitsettings "github.com/bergctf/berg-operator/internal/kit/settings"
)

// SettingNames are the settings of the operator that doctor, lint, plan and status use. make generate writes their
// defaults into zz_generated.defaults.go, because the plugin may not import the operator.
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

// Setting returns the value from the options and variables of the operator's Deployment, from its ConfigMap, or the default. It
// is not known if it comes from an object that could not be read.
func (s Survey) Setting(name string) (value string, known bool) {
	value = s.Sources[name]
	if c := s.container(); c != nil {
		if option, given := kitsettings.FindOption(c.Args, name); given {
			return option, true
		}
		// The last one of a name counts.
		for _, e := range slices.Backward(c.Env) {
			if e.Name == name {
				if e.ValueFrom != nil {
					return Defaults[name], false
				}
				value = e.Value
				break
			}
		}
	}
	switch value = strings.TrimSpace(value); {
	case value != "" && value != Defaults[name]:
		return value, true
	default: // as a variable that is not set
		return cmp.Or(strings.TrimSpace(s.Shared[name]), Defaults[name]), len(s.Unread) == 0
	}
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
	return append(results, sharedSettings(s)...)
}

// sharedSettings reports the settings of the ConfigMap: which are in force, which a variable replaces, and names that no program knows.
func sharedSettings(s Survey) []Result {
	if len(s.Shared) == 0 {
		return nil
	}
	if err := kitsettings.CheckNames(s.Shared); err != nil {
		return result("settings", console.Problem, "running programs keep their former settings, and new ones do not start: "+strings.ReplaceAll(err.Error(), "\n", "; "),
			fmt.Sprintf("kubectl -n %s edit configmap %s", s.Deployment.Namespace, kitsettings.ConfigMap))
	}
	if s.SharedProblem != "" {
		return result("settings", console.Problem, "the operator keeps its former settings, and does not start again with those of the ConfigMap: "+s.SharedProblem,
			fmt.Sprintf("kubectl -n %s edit configmap %s", s.Deployment.Namespace, kitsettings.ConfigMap))
	}
	var used, replaced []string
	for _, name := range slices.Sorted(maps.Keys(s.Shared)) {
		if value, _ := s.Setting(name); slices.Contains(SettingNames, name) && value != strings.TrimSpace(s.Shared[name]) {
			replaced = append(replaced, name)
		} else {
			used = append(used, name)
		}
	}
	text := fmt.Sprintf("from the ConfigMap %s: %s", kitsettings.ConfigMap, strings.Join(used, ", "))
	if len(replaced) > 0 {
		return result("settings", console.Warning, fmt.Sprintf("%s; options and variables of the Deployment replace %s", text, strings.Join(replaced, ", ")), "Remove them from one of both.")
	}
	return result("settings", console.OK, text, "")
}
