package registry

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layerWith is a layer of a file and a link, with a time.
func layerWith(t *testing.T, text string, at time.Time) v1.Layer {
	t.Helper()
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, header := range []*tar.Header{
		{Name: "text", Mode: 0o4755, Uid: 7, Size: int64(len(text)), ModTime: at, AccessTime: at, Format: tar.FormatPAX, PAXRecords: map[string]string{"SCHILY.xattr.user.a": "b"}},
		{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "text", ModTime: at},
	} {
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Size > 0 {
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// build writes the archive of an image with a layer of a base and two of the builder, which ran at a time.
func build(t *testing.T, base v1.Layer, at time.Time, text string) Push {
	t.Helper()
	image, err := mutate.Append(empty.Image,
		mutate.Addendum{Layer: base, History: v1.History{Author: "someone", Created: v1.Time{Time: time.Unix(1, 0)}}},
		mutate.Addendum{History: v1.History{Author: "someone", EmptyLayer: true}},
		mutate.Addendum{Layer: layerWith(t, "copied", at), History: v1.History{Author: builderAuthor}},
		mutate.Addendum{Layer: layerWith(t, text, at), History: v1.History{Author: builderAuthor}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.Created, config.Config.Hostname, config.Config.Labels = v1.Time{Time: at}, at.String(), map[string]string{"a": "b", labelRevision: "of the base"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("registry.example.org/team/web:build")
	if err != nil {
		t.Fatal(err)
	}
	p := Push{Root: t.TempDir(), Archive: "image.tar", Time: commitTime, Revision: "c0", Source: "https://git.example.org/team/web"}
	if err := tarball.WriteToFile(filepath.Join(p.Root, p.Archive), tag, image); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestImageHasTheTimeOfItsCommit(t *testing.T) {
	base := layerWith(t, "of the base", time.Unix(1, 0))
	now, at := time.Now(), time.Unix(1000000000, 0)
	p := build(t, base, now, "built")
	image, err := p.pushed()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 3 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	baseID, err := base.DiffID()
	if err != nil {
		t.Fatal(err)
	}
	if id, err := layers[0].DiffID(); err != nil || id != baseID {
		t.Errorf("the layer of the base is %s, %v, want %s", id, err, baseID)
	}
	for _, layer := range layers[1:] {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		files := tar.NewReader(content)
		for {
			header, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if !header.ModTime.Equal(at) || !header.AccessTime.IsZero() {
				t.Errorf("%s has times %s, %s", header.Name, header.ModTime, header.AccessTime)
			}
			if header.Name == "text" && (header.Mode != 0o4755 || header.Uid != 7 || header.PAXRecords["SCHILY.xattr.user.a"] != "b") {
				t.Errorf("%s has lost something: %+v", header.Name, header)
			}
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !config.Created.Equal(at) || config.History[2].Created.Unix() != at.Unix() || config.History[0].Created.Unix() != 1 {
		t.Errorf("created %s; history %+v", config.Created, config.History)
	}
	for label, want := range map[string]string{
		"a": "b", labelRevision: "c0", labelSource: "https://git.example.org/team/web", labelCreated: "2001-09-09T01:46:40Z",
	} {
		if got := config.Config.Labels[label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	if left, err := os.ReadDir(p.Root); err != nil || len(left) != 1 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

func TestDigestDependsOnTheCommitAlone(t *testing.T) {
	base := layerWith(t, "of the base", time.Unix(1, 0))
	sum := func(p Push) v1.Hash {
		image, err := p.pushed()
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	first := build(t, base, time.Now(), "built")
	if sum(first) != sum(build(t, base, time.Now().Add(-time.Hour), "built")) {
		t.Error("two builds of a commit have two digests")
	}
	later := build(t, base, time.Now(), "built")
	if later.Time = "1000000001"; sum(first) == sum(later) {
		t.Error("the next commit has the same digest, and its files the same time")
	}
	if sum(first) == sum(build(t, base, time.Now(), "other")) {
		t.Error("another content has the same digest")
	}
}

// A step on a full disk can report that only after the layer that filled it has released its space.
func TestALayerThatFailsKeepsNoFileOpen(t *testing.T) {
	countFiles := func() int {
		t.Helper()
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(open)
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	broken := static.NewLayer([]byte("no archive"), types.DockerUncompressedLayer)
	before := countFiles()
	for range 3 {
		if _, err := withTime(t.Context(), root, broken, time.Unix(0, 0)); err == nil {
			t.Fatal("a layer that is no archive has another time")
		}
	}
	if after := countFiles(); after != before {
		t.Errorf("%d files are open, %d before", after, before)
	}
}

// A layer is never in memory as a whole.
func TestALargeLayerTakesLittleMemory(t *testing.T) {
	const size = 256 << 20
	file := filepath.Join(t.TempDir(), "layer.tar")
	content, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(content)
	if err := w.WriteHeader(&tar.Header{Name: "large", Size: size, ModTime: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, rand.NewChaCha8([32]byte{}), size); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), content.Close()); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	changed, err := withTime(t.Context(), root, layer, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > size/8 {
		t.Errorf("a layer of %d bytes took %d bytes of memory", size, took)
	}
	if written, err := changed.Size(); err != nil || written < size {
		t.Errorf("the layer has %d bytes, %v", written, err)
	}
}
