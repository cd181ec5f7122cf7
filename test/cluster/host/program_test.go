package host

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestMissingPackages(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	packages := Packages{
		"there":           {"sh", "/bin/sh"},
		"one-is-absent":   {"sh", absent},
		"a-program":       {"no-program-has-this-name"},
		"nothing-of-them": nil,
	}
	if got, want := packages.Missing(), []string{"a-program", "one-is-absent"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
