package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The patterns are those of the schema.
func TestPatternsAreThoseOfTheSchema(t *testing.T) {
	schema, err := os.ReadFile("../../../config/berg/crd/bases/berg.norelect.ch_challenges.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []*regexp.Regexp{portName, bandwidth, amount} {
		if !strings.Contains(string(schema), pattern.String()) {
			t.Errorf("the schema has no %s", pattern)
		}
	}
}
