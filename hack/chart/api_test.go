package main

import (
	"testing"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/api/server"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/operator"
)

// The page of the evening calculates with the operator's settings: where neither is set, both mean the same.
func TestSettingsOfTheOperatorHaveOneDefault(t *testing.T) {
	defaults := map[string]string{}
	for _, section := range operator.Sections(new(config.Process), families.All()) {
		for _, s := range section.Settings {
			defaults[s.Name] = s.Default
		}
	}
	found := 0
	for _, s := range new(server.Config).Section().Settings {
		if !isOfOperator(s) {
			continue
		}
		found++
		if is, known := defaults[s.Name]; !known || is != s.Default {
			t.Errorf("%s is %q for the API, %q for the operator (it has it: %t)", s.Name, s.Default, is, known)
		}
	}
	if found < 5 {
		t.Errorf("only %d settings are those of the operator", found)
	}
}
