package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// numericUser keeps names out: an image made from nothing has no /etc/passwd to look them up in,
// and the kubelet can only prove runAsNonRoot for a number.
var numericUser = regexp.MustCompile(`^[0-9]+(:[0-9]+)?$`)

func build(args []string, stdout io.Writer) error {
	var (
		flags      = newFlagSet("build")
		ref        = flags.String("ref", "", "")
		output     = flags.String("output", "", "")
		user       = flags.String("user", "65532:65532", "")
		platform   = flags.String("platform", "linux/amd64", "")
		env        stringList
		labels     stringList
		entrypoint stringList
		dirs       stringList
	)
	flags.Var(&env, "env", "")
	flags.Var(&labels, "label", "")
	flags.Var(&entrypoint, "entrypoint", "")
	flags.Var(&dirs, "dir", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := requireFlags(flags, "ref", "output"); err != nil {
		return err
	}

	tag, err := name.NewTag(*ref, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--ref: %w", err)
	}
	config, err := imageConfig(*user, *platform, env, labels, entrypoint)
	if err != nil {
		return err
	}
	content := newFileTree()
	for _, argument := range dirs {
		if err := content.addDirectory(argument); err != nil {
			return fmt.Errorf("--dir %s: %w", argument, err)
		}
	}
	for _, argument := range flags.Args() {
		if err := content.add(argument); err != nil {
			return fmt.Errorf("%s: %w", argument, err)
		}
	}

	img, err := assemble(config, content)
	if err != nil {
		return err
	}
	if err := writeTarball(*output, tag, img); err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return fmt.Errorf("compute the digest: %w", err)
	}
	fmt.Fprintf(stdout, "built %s (%s) into %s\n", tag, digest, *output)
	return nil
}

func imageConfig(user, platform string, env, labels, entrypoint []string) (*v1.ConfigFile, error) {
	if !numericUser.MatchString(user) {
		return nil, fmt.Errorf("--user %q: want numbers, UID or UID:GID", user)
	}
	operatingSystem, architecture, found := strings.Cut(platform, "/")
	if !found || operatingSystem == "" || architecture == "" {
		return nil, fmt.Errorf("--platform %q: want OS/ARCH", platform)
	}
	for _, variable := range env {
		if name, _, found := strings.Cut(variable, "="); !found || name == "" {
			return nil, fmt.Errorf("--env %q: want NAME=VALUE", variable)
		}
	}
	labelMap := make(map[string]string, len(labels))
	for _, label := range labels {
		key, value, found := strings.Cut(label, "=")
		if !found || key == "" {
			return nil, fmt.Errorf("--label %q: want NAME=VALUE", label)
		}
		labelMap[key] = value
	}
	return &v1.ConfigFile{
		OS:           operatingSystem,
		Architecture: architecture,
		Created:      v1.Time{Time: epoch},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       user,
			WorkingDir: "/",
			Env:        env,
			Labels:     labelMap,
			Entrypoint: entrypoint,
		},
	}, nil
}

// assemble makes an image of one layer. Nothing of the machine or the moment goes into it.
func assemble(config *v1.ConfigFile, content *fileTree) (v1.Image, error) {
	var archive bytes.Buffer
	if err := content.writeTar(&archive); err != nil {
		return nil, fmt.Errorf("write the layer: %w", err)
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	// The images only travel to a registry on the same machine, where time counts more than size.
	layer, err := tarball.LayerFromOpener(opener,
		tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}

	img, err := mutate.ConfigFile(empty.Image, config)
	if err != nil {
		return nil, fmt.Errorf("set the configuration: %w", err)
	}
	img, err = mutate.Append(img, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "image build"},
	})
	if err != nil {
		return nil, fmt.Errorf("append the layer: %w", err)
	}
	return img, nil
}

// writeTarball replaces output in one step, so that a reader never sees half an image.
func writeTarball(output string, tag name.Tag, img v1.Image) error {
	dir := filepath.Dir(output)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the output directory: %w", err)
	}
	temporary, err := os.CreateTemp(dir, "."+filepath.Base(output)+"-*")
	if err != nil {
		return fmt.Errorf("make a file next to the output: %w", err)
	}
	defer os.Remove(temporary.Name())
	if err := tarball.Write(tag, img, temporary); err != nil {
		temporary.Close()
		return fmt.Errorf("write the tarball: %w", err)
	}
	if err := temporary.Chmod(0o644); err != nil {
		temporary.Close()
		return fmt.Errorf("write the tarball: %w", err)
	}
	if err := temporary.Close(); err != nil {
		return fmt.Errorf("write the tarball: %w", err)
	}
	if err := os.Rename(temporary.Name(), output); err != nil {
		return fmt.Errorf("move the tarball into place: %w", err)
	}
	return nil
}

// epoch is the time of every file and of the image itself: a real one would make each build differ.
var epoch = time.Unix(0, 0).UTC()
