// Plugin builds kubectl-berg for every platform and packs it with its licence and, except on Windows, the
// script for kubectl's completion. It also writes a list of what each program consists of, and the manifest for
// Krew. The archives are reproducible: the same sources and the same Go version give the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// name is the program, completion the script in PATH with which kubectl completes its arguments.
const (
	name       = "kubectl-berg"
	completion = "kubectl_complete-berg"
)

func main() {
	version := flag.String("version", "", "version with a leading v, as in v0.1.0")
	platforms := flag.String("platforms", "", "platforms, as in linux/amd64,darwin/arm64")
	url := flag.String("url", "", "URL of the folder with the published archives")
	output := flag.String("output", "", "folder to write to")
	flag.Parse()
	if err := run(*version, strings.Split(*platforms, ","), *url, *output); err != nil {
		fmt.Fprintln(os.Stderr, "plugin:", err)
		os.Exit(1)
	}
}

func run(version string, platforms []string, url, output string) error {
	if !strings.HasPrefix(version, "v") || url == "" || output == "" {
		return errors.New("--version, --url and --output must be set")
	}
	if err := os.MkdirAll(output, 0o750); err != nil {
		return err
	}
	var built []archive
	for _, platform := range platforms {
		system, machine, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("%q: must be a platform such as linux/amd64", platform)
		}
		a, err := pack(version, system, machine, output)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		fmt.Printf("%s  %s\n", a.sum, a.file)
		built = append(built, a)
	}
	manifest, err := manifestOf(version, url, built)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(output, "berg.yaml"), manifest, 0o644) //nolint:gosec // a published file
}

// archive is the archive for one platform.
type archive struct {
	system, machine string
	file, sum, bin  string
	// holds are the names of the files in it.
	holds []string
}

func pack(version, system, machine, output string) (archive, error) {
	a := archive{system: system, machine: machine, bin: name}
	if system == "windows" {
		a.bin += ".exe"
	}
	program := filepath.Join(output, system+"-"+machine, a.bin)
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w -X main.version="+version, "-o", program, "./cmd/kubectl-berg")
	build.Env = append(os.Environ(), pinned(system, machine)...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return a, fmt.Errorf("build: %w", err)
	}
	bill := fmt.Sprintf("%s_%s_%s_%s.cdx.json", name, version, system, machine)
	notices, err := writeNotices(version, program, filepath.Join(output, bill))
	if err != nil {
		return a, err
	}
	members := []member{{a.bin, program, 0o755}, {"LICENSE", "LICENSE", 0o644}, {"NOTICES.txt", notices, 0o644}}
	if system != "windows" { // the script needs sh
		members = append(members, member{completion, filepath.Join("cmd", name, completion), 0o755})
	}
	for _, m := range members {
		a.holds = append(a.holds, m.as)
	}
	packed, err := archiveOf(members...)
	if err != nil {
		return a, fmt.Errorf("pack: %w", err)
	}
	sum := sha256.Sum256(packed)
	a.sum = hex.EncodeToString(sum[:])
	a.file = fmt.Sprintf("%s_%s_%s_%s.tar.gz", name, version, system, machine)
	return a, os.WriteFile(filepath.Join(output, a.file), packed, 0o644) //nolint:gosec // a published file
}

// writeNotices writes what the licences of the linked modules ask for next to a program, and the list of the modules to bill.
func writeNotices(version, program, bill string) (file string, err error) {
	if program, err = filepath.Abs(program); err != nil {
		return "", err
	}
	if bill, err = filepath.Abs(bill); err != nil {
		return "", err
	}
	file = program + ".txt"
	list := exec.Command("go", "run", "-C", "hack/tools/sbom", ".", "--name", name, "--version", version,
		"--output", bill, "--notices", file, program)
	list.Stderr = os.Stderr
	if err := list.Run(); err != nil {
		return "", fmt.Errorf("list the licences: %w", err)
	}
	return file, nil
}

// pinned overrides the variables of the builder's environment that would change the program.
func pinned(system, machine string) []string {
	return []string{
		"GOOS=" + system, "GOARCH=" + machine, "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GODEBUG=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off",
	}
}

// member is a file of an archive.
type member struct {
	as, from string
	mode     int64
}

// archiveOf packs files without times and owners, which differ between machines.
func archiveOf(members ...member) ([]byte, error) {
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	files := tar.NewWriter(compressed)
	for _, m := range members {
		content, err := os.ReadFile(m.from)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Name: m.as, Mode: m.mode, Size: int64(len(content)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if err := files.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := files.Write(content); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(files.Close(), compressed.Close()); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// manifestOf returns a manifest in the format krew.googlecontainertools.github.com/v1alpha2.
func manifestOf(version, url string, built []archive) ([]byte, error) {
	type file struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	type platform struct {
		Selector map[string]map[string]string `json:"selector"`
		URI      string                       `json:"uri"`
		SHA256   string                       `json:"sha256"`
		Bin      string                       `json:"bin"`
		Files    []file                       `json:"files"`
	}
	var platforms []platform
	for _, a := range built {
		var files []file
		for _, held := range a.holds {
			files = append(files, file{held, "."})
		}
		platforms = append(platforms, platform{
			Selector: map[string]map[string]string{"matchLabels": {"os": a.system, "arch": a.machine}},
			URI:      strings.TrimSuffix(url, "/") + "/" + a.file,
			SHA256:   a.sum,
			Bin:      a.bin,
			Files:    files,
		})
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]any{"name": "berg"},
		"spec": map[string]any{
			"version":          version,
			"homepage":         "https://github.com/bergctf/berg-operator",
			"shortDescription": "Run CTF events: challenge instances of berg-operator",
			"description": "Manages challenge instances of berg-operator: list and try them, explain problems,\n" +
				"extend and end them, roll out edits, freeze an event, check whether a cluster is ready,\n" +
				"and calculate what an event needs.\n",
			"caveats": "It needs berg-operator on the cluster and uses your own permissions. Check both:\n" +
				"kubectl berg doctor\n",
			"platforms": platforms,
		},
	})
}
