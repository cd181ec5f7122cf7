package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/internal/platform/livepage"
)

func TestCopiesOfSettingsAreCurrent(t *testing.T) {
	files, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s has other settings than the tables: run make generate chart", path)
		}
	}
}

// The live page reads the operator's settings from its Deployment: a variable that is not set there has the operator's default.
func TestTheLivePageHasTheDefaultsOfTheOperator(t *testing.T) {
	defaults := map[string]string{}
	for _, section := range operator.Sections(new(config.Process), families.All()) {
		for _, s := range section.Settings {
			defaults[s.Name] = s.Default
		}
	}
	found := 0
	for _, s := range livepage.OperatorSettings() {
		found++
		if value, known := defaults[s.Name]; !known || value != s.Default {
			t.Errorf("%s is %q for the live page, %q for the operator (it has it: %t)", s.Name, s.Default, value, known)
		}
	}
	if found < 5 {
		t.Errorf("only %d settings are read from the operator", found)
	}
}
