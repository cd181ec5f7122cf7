package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func push(ctx context.Context, args []string, stdout io.Writer) error {
	flags := newFlagSet("push")
	authority := flags.String("ca", "", "")
	registryHost := flags.String("registry", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := requireFlags(flags, "ca", "registry"); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("no image tarball given")
	}
	target, err := name.NewRegistry(*registryHost, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--registry: %w", err)
	}
	transport, err := trustOnly(*authority)
	if err != nil {
		return fmt.Errorf("--ca: %w", err)
	}
	defer transport.CloseIdleConnections()

	for _, file := range flags.Args() {
		images, err := readTarball(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, image := range images {
			reference := target.Repo(image.tag.RepositoryStr()).Tag(image.tag.TagStr())
			if err := remote.Write(reference, image.content, remote.WithTransport(transport), remote.WithContext(ctx)); err != nil {
				return fmt.Errorf("%s: push %s: %w", file, reference, err)
			}
			fmt.Fprintf(stdout, "pushed %s as %s\n", image.tag, reference)
		}
	}
	return nil
}

type taggedImage struct {
	tag     name.Tag
	content v1.Image
}

// readTarball returns every tag of the tarball with its image, in the order of the tarball.
func readTarball(file string) ([]taggedImage, error) {
	opener := func() (io.ReadCloser, error) { return os.Open(file) }
	manifest, err := tarball.LoadManifest(opener)
	if err != nil {
		return nil, fmt.Errorf("read the image tarball: %w", err)
	}
	var images []taggedImage
	for _, descriptor := range manifest {
		for _, reference := range descriptor.RepoTags {
			tag, err := name.NewTag(reference)
			if err != nil {
				return nil, fmt.Errorf("tag of the image: %w", err)
			}
			content, err := tarball.Image(opener, &tag)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", tag, err)
			}
			images = append(images, taggedImage{tag: tag, content: content})
		}
	}
	if len(images) == 0 {
		return nil, errors.New("the tarball names no tag: build or save the image with one")
	}
	return images, nil
}

// trustOnly returns a transport that accepts certificates of this authority and no proxy: the
// registry is on this machine, and a proxy of the environment could not reach it.
func trustOnly(authorityFile string) (*http.Transport, error) {
	pem, err := os.ReadFile(authorityFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", authorityFile)
	}
	transport := remote.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return transport, nil
}
