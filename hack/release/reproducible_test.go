package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The digests of images are published before the images are pushed, and who builds the same sources again compares with them.
// What an archive adds to its programs is tested with the program that writes archives.
func TestProgramsAreReproducible(t *testing.T) {
	const root = "../.."
	var programs [][]byte
	for range 2 {
		// In another folder, at another time, and without the repository's history.
		copied := t.TempDir()
		for _, folder := range []string{"hack/make", "api", "cmd", "internal"} {
			if err := os.CopyFS(filepath.Join(copied, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{"Makefile", "hack/versions.mk", "go.mod", "go.sum"} {
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(copied, file), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// The smallest program of the image; all are built with the flags of GO_BUILD.
		build := exec.CommandContext(t.Context(), "make", "tunnel-proxy")
		build.Dir = copied
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("make tunnel-proxy: %v\n%s", err, out)
		}
		program, err := os.ReadFile(filepath.Join(copied, "bin", "berg-tunnel"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(program, []byte(copied)) {
			t.Errorf("the program contains the folder that it was built in, %s", copied)
		}
		programs = append(programs, program)
	}
	if !bytes.Equal(programs[0], programs[1]) {
		t.Error("the second program is another one")
	}
}
