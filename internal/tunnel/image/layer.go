package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The content of an image in addition to its base.
const (
	// Program is the path of the program, which is the entrypoint.
	Program = "/usr/local/bin/dcptun_c"
	// User is the default user.
	User = "65532:65532"
	// BaseDigestLabel has the digest of the base image.
	BaseDigestLabel = "com.microsoft.developer.usvc-dev.base-image-digest"
	// ProgramDigestLabel has the SHA-256 of the program, in hexadecimal.
	ProgramDigestLabel = "com.microsoft.developer.usvc-dev.program-digest"
)

// fileDigest returns the SHA-256 of a file, in hexadecimal.
func fileDigest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // it was only read
	sum, _, err := v1.SHA256(file)
	return sum.Hex, err
}

// assemble puts the program on a base.
func assemble(base v1.Image, path, programDigest, baseDigest string) (v1.Image, error) {
	mediaType, err := base.MediaType()
	if err != nil {
		return nil, err
	}
	layerType := types.DockerLayer
	if mediaType == types.OCIManifestSchema1 {
		layerType = types.OCILayer
	}
	content, err := archive(path)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(layerType))
	if err != nil {
		return nil, err
	}
	made, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{CreatedBy: "berg-operator: the client proxy", Comment: programDigest},
	})
	if err != nil {
		return nil, err
	}
	file, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := *file.Config.DeepCopy()
	config.Entrypoint, config.Cmd, config.User, config.WorkingDir = []string{Program}, nil, User, "/"
	if config.Labels == nil {
		config.Labels = map[string]string{}
	}
	config.Labels[BaseDigestLabel], config.Labels[ProgramDigestLabel] = baseDigest, programDigest
	return mutate.Config(made, config)
}

// archive returns a layer's content: one file, owned by root, that all users may run. It has no time, so that its digest is
// always the same, and no folders, so that it does not change the folders of the base.
func archive(path string) ([]byte, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	content.Grow(len(program) + 2048)
	writer := tar.NewWriter(&content)
	err = writer.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg,
		Name:     strings.TrimPrefix(Program, "/"),
		Mode:     0o755,
		Size:     int64(len(program)),
		ModTime:  time.Unix(0, 0),
		Format:   tar.FormatUSTAR,
	})
	if err == nil {
		_, err = writer.Write(program)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", path, err)
	}
	return content.Bytes(), nil
}
