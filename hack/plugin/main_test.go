package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// A rebuild must give the checksums of the manifest, on any machine.
func TestArchivesAreReproducible(t *testing.T) {
	folder := t.TempDir()
	var made [][]byte
	for i, written := range []time.Time{time.Unix(1, 0), time.Unix(2_000_000_000, 0)} {
		program := filepath.Join(folder, fmt.Sprint(i), "kubectl-berg.exe")
		if err := os.Mkdir(filepath.Dir(program), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, []byte("a program"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(program, written, written); err != nil {
			t.Fatal(err)
		}
		packed, err := archiveOf(member{"kubectl-berg.exe", program, 0o755}, member{"LICENSE", filepath.Join("..", "..", "LICENSE"), 0o644})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, packed)
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("two archives of the same files differ")
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(made[0]))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for files := tar.NewReader(unpacked); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, fmt.Sprintf("%s %o %d", header.Name, header.Mode, header.Uid))
	}
	if want := []string{"kubectl-berg.exe 755 0", "LICENSE 644 0"}; !slices.Equal(found, want) {
		t.Errorf("the archive holds %q, want %q", found, want)
	}
}

// The requirements of Krew's index: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
func TestKrewManifest(t *testing.T) {
	text, err := manifestOf("v1.2.3", "https://example.com/v1.2.3/", []archive{
		{"linux", "amd64", "kubectl-berg_v1.2.3_linux_amd64.tar.gz", strings.Repeat("0a", 32), "kubectl-berg", []string{"kubectl-berg", "LICENSE", completion}},
		{"windows", "arm64", "kubectl-berg_v1.2.3_windows_arm64.tar.gz", strings.Repeat("0b", 32), "kubectl-berg.exe", []string{"kubectl-berg.exe", "LICENSE"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription string
			Platforms                           []struct {
				URI, SHA256, Bin string
				Selector         struct{ MatchLabels map[string]string }
				Files            []struct{ From, To string }
			}
		}
	}
	if err := yaml.UnmarshalStrict(text, &m, yaml.DisallowUnknownFields); err == nil {
		t.Error("the description is missing")
	}
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" || m.Metadata.Name != "berg" || m.Spec.Version != "v1.2.3" {
		t.Errorf("%+v", m)
	}
	if len(m.Spec.ShortDescription) > 60 || strings.HasSuffix(m.Spec.ShortDescription, ".") {
		t.Errorf("short description %q", m.Spec.ShortDescription)
	}
	for _, p := range m.Spec.Platforms {
		if !regexp.MustCompile(`^https://example.com/v1.2.3/kubectl-berg_v1.2.3_[a-z0-9_]+\.tar\.gz$`).MatchString(p.URI) ||
			len(p.SHA256) != 64 || len(p.Selector.MatchLabels) != 2 || p.Files[0].From != p.Bin ||
			slices.ContainsFunc(p.Files, func(f struct{ From, To string }) bool { return f.From == completion }) != (p.Bin == name) {
			t.Errorf("%+v", p)
		}
	}
}
