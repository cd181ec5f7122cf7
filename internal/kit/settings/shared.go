package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// environmentOnly are settings that programs must not share: whose namespace it is, and which Lease.
var environmentOnly = []string{"POD_NAMESPACE", "LEASE_NAME"}

// CheckNames returns an error for each name that no program knows, or that is a setting of the environment only.
func CheckNames(content map[string]string) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(content)) {
		switch {
		case slices.Contains(environmentOnly, name):
			problems = append(problems, fmt.Errorf("%s: %s can be set in the environment only", FromConfigMap, name))
		case !slices.Contains(programNames, name):
			problems = append(problems, fmt.Errorf("%s: %s is no setting%s: docs/settings.md and docs/platform-api.md list all", FromConfigMap, name, similar(name)))
		}
	}
	return errors.Join(problems...)
}

// similar names the setting that differs in case or in the sign between words alone.
func similar(name string) string {
	upper := strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
	if slices.Contains(programNames, upper) {
		return ", did you mean " + upper + "?"
	}
	return ""
}
