package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestBuildPushPull(t *testing.T) {
	dir := t.TempDir()
	program := writeFile(t, filepath.Join(dir, "program"), "\x7fELF program", 0o700)
	data := filepath.Join(dir, "data")
	writeFile(t, filepath.Join(data, "sub", "file.txt"), "hello", 0o600)
	if err := os.Symlink("sub/file.txt", filepath.Join(data, "link")); err != nil {
		t.Fatal(err)
	}
	tarball := filepath.Join(dir, "out", "image.tar")
	mustRun(t, "build", "--ref", "ghcr.io/bergctf/samples/web:v0.1.0", "--output", tarball,
		"--user", "1000:1000", "--env", "A=1", "--env", "B=x=y", "--label", "k=v",
		"--entrypoint", "/usr/bin/program", "--entrypoint", "serve", "--dir", "/tmp:1777",
		program+":/usr/bin/program", data+":/srv", program+":/usr/bin/secret:0111")

	registry := startRegistry(t, filepath.Join(dir, "registry"))
	mustRun(t, "push", "--ca", registry.authorityFile, "--registry", registry.address, tarball)

	img := registry.pull(t, "bergctf/samples/web:v0.1.0")
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if want := (v1.Config{
		User:       "1000:1000",
		WorkingDir: "/",
		Env:        []string{"A=1", "B=x=y"},
		Labels:     map[string]string{"k": "v"},
		Entrypoint: []string{"/usr/bin/program", "serve"},
	}); !reflect.DeepEqual(config.Config, want) {
		t.Errorf("config = %+v, want %+v", config.Config, want)
	}
	if config.OS != "linux" || config.Architecture != "amd64" {
		t.Errorf("platform = %s/%s, want linux/amd64", config.OS, config.Architecture)
	}

	want := []string{
		"srv/ 5 0755 0:0 ",
		"srv/link 2 0777 0:0 -> sub/file.txt",
		"srv/sub/ 5 0755 0:0 ",
		"srv/sub/file.txt 0 0644 0:0 hello",
		"tmp/ 5 1777 0:0 ",
		"usr/ 5 0755 0:0 ",
		"usr/bin/ 5 0755 0:0 ",
		"usr/bin/program 0 0755 0:0 \x7fELF program",
		"usr/bin/secret 0 0111 0:0 \x7fELF program",
	}
	if got := listLayer(t, img); !reflect.DeepEqual(got, want) {
		t.Errorf("layer:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Nodes of each platform pull the same name, whose digest is known before it is pushed.
func TestIndexOfPlatforms(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "program"), "program", 0o755)
	var tarballs []string
	for _, arch := range []string{"amd64", "arm64"} {
		tarball := filepath.Join(dir, arch+".tar")
		mustRun(t, "build", "--ref", "example.org/web:1", "--output", tarball, "--platform", "linux/"+arch, file+":/program")
		tarballs = append(tarballs, tarball)
	}
	printed := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if err := run(t.Context(), append([]string{"index"}, args...), &out, io.Discard); err != nil {
			t.Fatal(err)
		}
		_, digest, _ := strings.Cut(strings.TrimSpace(out.String()), " ")
		return digest
	}
	want := printed(append([]string{"--ref", "example.org/web:1"}, tarballs...)...)

	registry := startRegistry(t, filepath.Join(dir, "registry"))
	ref := registry.address + "/team/web:1"
	if got := printed(append([]string{"--ref", ref, "--push", "--ca", registry.authorityFile}, tarballs...)...); got != want {
		t.Errorf("what was pushed is %s, announced was %s", got, want)
	}
	pushed, err := remote.Index(registry.tag(t, "team/web:1"), registry.options(t)...)
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := pushed.Digest(); err != nil || digest.String() != want {
		t.Errorf("the registry has %s, %v, announced was %s", digest, err, want)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := remote.Image(registry.tag(t, "team/web:1"), append(registry.options(t), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))...)
		if err != nil {
			t.Fatal(err)
		}
		if config, err := img.ConfigFile(); err != nil || config.Architecture != arch {
			t.Errorf("for %s there is %+v, %v", arch, config, err)
		}
	}

	for _, args := range [][]string{{}, {"--ref", "web"}, {"--ref", "example.org/web:1"}, {"--ref", "example.org/web:1", tarballs[0], tarballs[0]}, {"--ref", "example.org/web:1", file}} {
		if err := run(t.Context(), append([]string{"index"}, args...), io.Discard, io.Discard); err == nil {
			t.Errorf("index %q is no error", args)
		}
	}
}

func TestBuildIsReproducible(t *testing.T) {
	tarballs := make([][]byte, 2)
	for i := range tarballs {
		// Another folder, another umask and another time must not show.
		dir := t.TempDir()
		mode := []os.FileMode{0o600, 0o644}[i]
		file := writeFile(t, filepath.Join(dir, "b"), strings.Repeat("content", 10_000), mode)
		folder := filepath.Join(dir, "folder")
		writeFile(t, filepath.Join(folder, "z"), "z", mode)
		writeFile(t, filepath.Join(folder, "a"), "a", mode)
		moment := time.Unix(int64(i)*1_000_000, 0)
		if err := os.Chtimes(file, moment, moment); err != nil {
			t.Fatal(err)
		}
		output := filepath.Join(dir, "image.tar")
		mustRun(t, "build", "--ref", "example.com/a/b:c", "--output", output,
			"--label", "one=1", "--label", "two=2", file+":/b", folder+":/folder")
		tarballs[i] = readFile(t, output)
	}
	if !bytes.Equal(tarballs[0], tarballs[1]) {
		t.Error("two builds of the same content differ")
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "f"), "f", 0o644)
	output := filepath.Join(dir, "image.tar")
	valid := []string{"build", "--ref", "example.com/some/image:v1", "--output", output}
	with := func(more ...string) []string { return append(append([]string{}, valid...), more...) }

	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no command":          {nil, "no command given"},
		"unknown command":     {[]string{"pull"}, `unknown command "pull"`},
		"build without flags": {[]string{"build"}, "missing --ref, --output"},
		"bad ref":             {[]string{"build", "--ref", "A B", "--output", output}, "--ref"},
		"user by name":        {with("--user", "root"), `--user "root"`},
		"bad platform":        {with("--platform", "linux"), "want OS/ARCH"},
		"bad env":             {with("--env", "A"), `--env "A"`},
		"bad label":           {with("--label", "=v"), `--label "=v"`},
		"no destination":      {with(file), "want SRC:DST"},
		"relative target":     {with(file + ":f"), "not an absolute path"},
		"bad mode":            {with(file + ":/f:9"), `mode "9"`},
		"missing source":      {with(filepath.Join(dir, "none") + ":/f"), "no such file"},
		"twice":               {with(file+":/f", file+":/f"), "/f is already in the image"},
		"file as directory":   {with(file+":/f", file+":/f/g"), "/f is already in the image"},
		"file as root":        {with(file + ":/"), "can only be a directory"},
		"push without flags":  {[]string{"push", output}, "missing --ca, --registry"},
		"push nothing":        {[]string{"push", "--ca", file, "--registry", "localhost:1"}, "no image tarball"},
		"push without CA":     {[]string{"push", "--ca", file, "--registry", "localhost:1", output}, "no PEM certificate"},
		"serve without flags": {[]string{"serve"}, "missing --listen, --cert, --key, --dir"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), test.args, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want one with %q", err, test.want)
			}
		})
	}
	if _, err := os.Stat(output); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused build left %s behind (%v)", output, err)
	}
}

// testRegistry is a registry over TLS on the loopback interface.
type testRegistry struct{ address, authorityFile string }

func startRegistry(t *testing.T, dir string) *testRegistry {
	t.Helper()
	handler, err := newRegistry(dir, log.New(io.Discard, "", 0))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &testRegistry{
		address:       server.Listener.Addr().String(),
		authorityFile: writeFile(t, filepath.Join(t.TempDir(), "ca.crt"), string(authority), 0o600),
	}
}

func (r *testRegistry) tag(t *testing.T, reference string) name.Reference {
	t.Helper()
	parsed, err := name.ParseReference(r.address + "/" + reference)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func (r *testRegistry) options(t *testing.T) []remote.Option {
	t.Helper()
	transport, err := trustOnly(r.authorityFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return []remote.Option{remote.WithTransport(transport), remote.WithContext(t.Context())}
}

func (r *testRegistry) pull(t *testing.T, reference string) v1.Image {
	t.Helper()
	img, err := remote.Image(r.tag(t, reference), r.options(t)...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// listLayer describes every entry of the only layer in one line.
func listLayer(t *testing.T, img v1.Image) []string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 1 {
		t.Fatalf("%d layers, want 1", len(layers))
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var lines []string
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(epoch) {
			t.Errorf("%s has time %s", header.Name, header.ModTime)
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeSymlink {
			body = []byte("-> " + header.Linkname)
		}
		lines = append(lines, fmt.Sprintf("%s %c %04o %d:%d %s",
			header.Name, header.Typeflag, header.Mode, header.Uid, header.Gid, body))
	}
}

func mustRun(t *testing.T, args ...string) {
	t.Helper()
	if err := run(t.Context(), args, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, file, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func readFile(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
