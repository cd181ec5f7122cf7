package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestEveryProgramIsAnImage(t *testing.T) {
	notImages := []string{"internal", "solve"}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !entry.IsDir() || slices.Contains(notImages, entry.Name()) {
			continue
		}
		if _, err := selectImages([]string{entry.Name()}); err != nil {
			t.Errorf("folder %s: %v", entry.Name(), err)
		}
	}
	for _, image := range images {
		if _, err := os.Stat(image.name + "/main.go"); err != nil {
			t.Errorf("image %s: %v", image.name, err)
		}
		for source := range image.files {
			if _, err := os.Stat(source); err != nil {
				t.Errorf("image %s: %v", image.name, err)
			}
		}
	}
}

func TestUnknownImageIsRefused(t *testing.T) {
	err := run(t.Context(), []string{"--output", t.TempDir(), "web", "wbe"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `no image "wbe"`) {
		t.Errorf("error = %v", err)
	}
}
