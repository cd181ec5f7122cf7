package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreThoseOfTheBundles(t *testing.T) {
	files, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	there, err := filepath.Glob("../../config/olm/v1/*.yaml")
	if err != nil || len(files) != 5 || len(there) != len(files) {
		t.Fatalf("%d packages, %q: %v", len(files), there, err)
	}
	for path, want := range files {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from its bundle: run go run ./hack/olm-v1 (%v)", path, err)
		}
	}
}
