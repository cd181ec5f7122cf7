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

// JoinContent returns the content of a ConfigMap with these fields. kubectl puts values that are not UTF-8 into binaryData: their names are
// checked, too.
func JoinContent(data map[string]string, binaryData map[string][]byte) map[string]string {
	content := make(map[string]string, len(data)+len(binaryData))
	maps.Copy(content, data)
	for name, value := range binaryData {
		content[name] = string(value)
	}
	return content
}

// CheckNames returns an error for each name that no program knows, or that is a setting of the environment only.
func CheckNames(content map[string]string) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(content)) {
		switch {
		case slices.Contains(environmentOnly, name):
			problems = append(problems, fmt.Errorf("%s: %s can be set in the environment only", FromConfigMap, name))
		case !slices.Contains(programNames, name):
			problems = append(problems, fmt.Errorf("%s: %s is no setting%s: docs/settings.md, docs/platform-api.md and docs/berg/gate.md list all", FromConfigMap, name, similar(name)))
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
