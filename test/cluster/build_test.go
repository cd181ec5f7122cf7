package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func testPlaces(t *testing.T) places {
	t.Helper()
	dir := t.TempDir()
	return places{components: filepath.Join(dir, "components"), binaries: filepath.Join(dir, "bin"), clusters: filepath.Join(dir, "clusters")}
}

func TestManyBuildOnce(t *testing.T) {
	p := testPlaces(t)
	const runners = 8
	var builds, arrived atomic.Int32
	slow := &part{name: "slow", build: func(b *builder, out string) error {
		builds.Add(1)
		// Not before the others want it too.
		err := poll(t.Context(), func(context.Context) error {
			if arrived.Load() < runners {
				return errors.New("somebody is missing")
			}
			return nil
		})
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(out, "program"), []byte("built"), 0o755)
	}}
	var group sync.WaitGroup
	for range runners {
		group.Go(func() {
			arrived.Add(1)
			dir, err := buildOne(t.Context(), p, slow, newProgress(io.Discard))
			if err != nil {
				t.Error(err)
				return
			}
			if content, err := os.ReadFile(filepath.Join(dir, "program")); err != nil || string(content) != "built" {
				t.Errorf("the part holds %q, %v", content, err)
			}
		})
	}
	group.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times, want once", n)
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	p := testPlaces(t)
	broken := errors.New("broken")
	part := &part{name: "part", build: func(b *builder, out string) error {
		if err := os.WriteFile(filepath.Join(out, "half"), nil, 0o755); err != nil {
			return err
		}
		return broken
	}}
	// As a runner leaves it that is killed while it builds.
	if err := os.MkdirAll(filepath.Join(p.binaries, ".unfinished-part-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := buildOne(t.Context(), p, part, newProgress(io.Discard)); !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	entries, err := os.ReadDir(p.binaries)
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
	if _, err := buildOne(t.Context(), p, part, newProgress(io.Discard)); err != nil {
		t.Error(err)
	}
}

func TestCacheThatCannotBeWritten(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	p := testPlaces(t)
	if err := os.MkdirAll(p.binaries, 0o555); err != nil {
		t.Fatal(err)
	}
	_, err := buildOne(t.Context(), p, &part{name: "part"}, newProgress(io.Discard))
	if err == nil || !strings.Contains(err.Error(), "BERG_CLUSTER_BIN") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line with the remedy", err)
	}
}
