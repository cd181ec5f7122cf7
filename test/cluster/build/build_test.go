package build

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

func testPlaces(t *testing.T) disk.Places {
	t.Helper()
	dir := t.TempDir()
	return disk.Places{Components: filepath.Join(dir, "components"), Binaries: filepath.Join(dir, "bin"), Clusters: filepath.Join(dir, "clusters")}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	p := testPlaces(t)
	broken := errors.New("broken")
	part := &Part{Name: "part", build: func(b *builder, out string) error {
		if err := os.WriteFile(filepath.Join(out, "half"), nil, 0o755); err != nil {
			return err
		}
		return broken
	}}
	// As a runner leaves it that is killed while it builds.
	if err := os.MkdirAll(filepath.Join(p.Binaries, ".unfinished-part-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := One(t.Context(), p, part, progress.New(io.Discard)); !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	entries, err := os.ReadDir(p.Binaries)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".locks" {
			t.Errorf("left behind: %s", e.Name())
		}
	}
	// And the next one succeeds.
	part.build = func(*builder, string) error { return nil }
	if _, err := One(t.Context(), p, part, progress.New(io.Discard)); err != nil {
		t.Error(err)
	}
}

func TestKeyFollowsTheSources(t *testing.T) {
	components := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		file := filepath.Join(components, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := disk.Places{Components: components}
	last := ""
	key := func(part *Part) string {
		t.Helper()
		key, err := Key(t.Context(), p, part)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	changed := func(what string, want bool) {
		t.Helper()
		now := key(ImageTool)
		if (now != last) != want {
			t.Errorf("%s: key changed: %v, want %v", what, now != last, want)
		}
		last = now
	}
	write("image/go.mod", "module image\n")
	write("image/main.go", "package main\n")
	last = key(ImageTool)
	changed("nothing", false)
	write("image/main_test.go", "package main\n")
	changed("a test", false)
	write("image/README.md", "# image\n")
	changed("prose", false)
	write("image/main.go", "package main // changed\n")
	changed("a source", true)
	write("image/go.mod", "module image\n\ngo 1.26\n")
	changed("go.mod", true)
	write("image/pause/main.go", "package main\n")
	changed("a source in a folder", true)
	// The same bytes, cut differently between two files.
	write("image/a", "xy")
	write("image/b", "")
	last = key(ImageTool)
	write("image/a", "x")
	write("image/b", "y")
	changed("content moved from one file to the next", true)

	other := *ImageTool
	other.recipe = "otherwise"
	if key(&other) == key(ImageTool) {
		t.Error("another recipe has the same key")
	}
}
