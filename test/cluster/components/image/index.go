package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// makeIndex puts the images of all platforms under one name. Its digest depends on the images alone, so it is known before
// anything is pushed.
func makeIndex(ctx context.Context, args []string, stdout io.Writer) error {
	flags := newFlagSet("index")
	ref := flags.String("ref", "", "")
	pushed := flags.Bool("push", false, "")
	authority := flags.String("ca", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := requireFlags(flags, "ref"); err != nil {
		return err
	}
	tag, err := name.NewTag(*ref, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--ref: %w", err)
	}
	all, err := ofPlatforms(flags.Args())
	if err != nil {
		return err
	}
	if *pushed {
		if err := pushIndex(ctx, tag, all, *authority); err != nil {
			return fmt.Errorf("push %s: %w", tag, err)
		}
	}
	digest, err := all.Digest()
	if err != nil {
		return fmt.Errorf("compute the digest: %w", err)
	}
	fmt.Fprintf(stdout, "%s %s\n", tag, digest)
	return nil
}

// ofPlatforms returns the images of tarballs, each of another platform.
func ofPlatforms(files []string) (v1.ImageIndex, error) {
	if len(files) == 0 {
		return nil, errors.New("no image tarball given")
	}
	all := mutate.IndexMediaType(empty.Index, types.DockerManifestList)
	seen := map[string]string{}
	for _, file := range files {
		images, err := readTarball(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(images) != 1 {
			return nil, fmt.Errorf("%s has %d images, want one", file, len(images))
		}
		config, err := images[0].content.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		platform := config.Platform()
		if other, twice := seen[platform.String()]; twice {
			return nil, fmt.Errorf("%s and %s are both of the platform %s", other, file, platform)
		}
		seen[platform.String()] = file
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: images[0].content, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return all, nil
}

// pushIndex pushes to the registry of the name, with the login that Docker or Podman has saved.
func pushIndex(ctx context.Context, tag name.Tag, all v1.ImageIndex, authority string) error {
	transport := remote.DefaultTransport.(*http.Transport).Clone()
	if authority != "" {
		var err error
		if transport, err = trustOnly(authority); err != nil {
			return fmt.Errorf("--ca: %w", err)
		}
	}
	defer transport.CloseIdleConnections()
	return remote.WriteIndex(tag, all, remote.WithTransport(transport), remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
}
