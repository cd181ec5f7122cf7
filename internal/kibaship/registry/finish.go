package registry

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// builderAuthor is the author that kaniko writes into the history of an image, for each layer that it made.
const builderAuthor = "kaniko"

// The labels of an image that say what it was built from:
// https://github.com/opencontainers/image-spec/blob/main/annotations.md
const (
	labelCreated  = "org.opencontainers.image.created"
	labelRevision = "org.opencontainers.image.revision"
	labelSource   = "org.opencontainers.image.source"
)

// commit is what an image was built from, and where it is.
type commit struct {
	time             time.Time
	revision, source string
}

// finish returns the image with the time of the commit in everything that was built, so that the digest depends on the commit
// alone, and a file of another commit has another time. Layers of the base image stay as the registry has them.
// The builder could do so only in memory. The image is put together from the layers and the configuration alone.
func finish(ctx context.Context, image v1.Image, dir string, built commit) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // its files are open
	for i, changes := range builtLayers(config.History, len(layers)) {
		if !changes {
			continue
		}
		if layers[i], err = withTime(ctx, root, layers[i], built.time); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	finished, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	skeleton, err := finished.ConfigFile()
	if err != nil {
		return nil, err
	}
	changed := config.DeepCopy()
	changed.RootFS = skeleton.RootFS
	changed.Created = v1.Time{Time: built.time}
	changed.Container, changed.Config.Hostname = "", ""
	for i := range changed.History {
		if changed.History[i].Author == builderAuthor {
			changed.History[i].Created = v1.Time{Time: built.time}
		}
	}
	if changed.Config.Labels == nil {
		changed.Config.Labels = map[string]string{}
	}
	changed.Config.Labels[labelCreated] = built.time.Format(time.RFC3339)
	changed.Config.Labels[labelRevision] = built.revision
	changed.Config.Labels[labelSource] = built.source
	return mutate.ConfigFile(finished, changed)
}

// builtLayers says of each layer whether the builder made it, all of them if the history does not fit the layers.
func builtLayers(history []v1.History, layers int) []bool {
	var built []bool
	for _, entry := range history {
		if !entry.EmptyLayer {
			built = append(built, entry.Author == builderAuthor)
		}
	}
	if len(built) == layers {
		return built
	}
	built = make([]bool, layers)
	for i := range built {
		built[i] = true
	}
	return built
}

// layerFile is a layer in a file that has no name any more.
type layerFile struct {
	content        *os.File
	digest, diffID v1.Hash
	size           int64
}

func (f *layerFile) Digest() (v1.Hash, error)             { return f.digest, nil }
func (f *layerFile) DiffID() (v1.Hash, error)             { return f.diffID, nil }
func (f *layerFile) Size() (int64, error)                 { return f.size, nil }
func (f *layerFile) MediaType() (types.MediaType, error)  { return types.DockerLayer, nil }
func (f *layerFile) Compressed() (io.ReadCloser, error)   { return io.NopCloser(f.reader()), nil }
func (f *layerFile) Uncompressed() (io.ReadCloser, error) { return gzip.NewReader(f.reader()) }
func (f *layerFile) reader() io.Reader                    { return io.NewSectionReader(f.content, 0, f.size) }

// withTime writes a layer with another time to a file next to the archive, and takes little memory however large the layer is.
func withTime(ctx context.Context, root *os.Root, layer v1.Layer, moment time.Time) (changed v1.Layer, err error) {
	name := "layer-" + rand.Text()
	// The name is removed as soon as the file is open, so that the file goes with the process, however it ends.
	content, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = content.Close() // it uses the disk until then: where the disk is full, the step could not report why it failed
		}
	}()
	if err := root.Remove(name); err != nil {
		return nil, err
	}
	from, err := layer.Uncompressed()
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }() // it was only read
	digest, diffID := sha256.New(), sha256.New()
	compressed, err := gzip.NewWriterLevel(io.MultiWriter(content, digest), gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := copyWithTime(ctx, io.MultiWriter(compressed, diffID), from, moment); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	size, err := content.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	return &layerFile{content, sumHash(digest), sumHash(diffID), size}, nil
}

func sumHash(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}

// copyWithTime copies an archive, and sets the time of every file in it. It looks at ctx between files, so a large file is
// finished first.
func copyWithTime(ctx context.Context, to io.Writer, from io.Reader, moment time.Time) error {
	in, out := tar.NewReader(from), tar.NewWriter(to)
	for ctx.Err() == nil {
		header, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out.Close()
		case err != nil:
			return err
		case header.Typeflag == tar.TypeXGlobalHeader: // a comment
			continue
		}
		header.ModTime, header.AccessTime, header.ChangeTime = moment, time.Time{}, time.Time{}
		header.Format = tar.FormatUnknown // the first one that fits
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil { //nolint:gosec // nothing of it is kept but the compressed file, which the volume bounds
			return err
		}
	}
	return ctx.Err()
}
