package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// The samples name images that only this program builds: a wrong name would show no sooner than in a
// pod that cannot start.
func TestSamplesUseImagesThatAreBuilt(t *testing.T) {
	var built []string
	for _, image := range images {
		built = append(built, image.reference())
	}
	files, err := filepath.Glob("../../../config/berg/samples/*_challenge*_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ +image: (\S+)$`)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range line.FindAllSubmatch(text, -1) {
			found++
			if !slices.Contains(built, string(match[1])) {
				t.Errorf("%s uses %s, which is not among %v", file, match[1], built)
			}
		}
	}
	if found < 5 {
		t.Errorf("%d images found in %v, want at least 5", found, files)
	}
}
