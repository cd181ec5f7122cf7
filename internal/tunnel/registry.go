package tunnel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/tunnel/image"
	"github.com/bergctf/berg-operator/internal/tunnel/proxyroom"
)

// registry builds images for a registry, one at a time. What it logs in with is read for each,
// so that a password may be changed.
type registry struct {
	config    config.Tunnel
	secrets   client.Reader
	namespace string
	turn      chan struct{}
}

// longestBuild is enough for a large base over a slow line.
const longestBuild = 15 * time.Minute

func newRegistry(cfg config.Tunnel, secrets client.Reader, namespace string) proxyroom.Images {
	if cfg.Registry == "" {
		return nil
	}
	return &registry{config: cfg, secrets: secrets, namespace: namespace, turn: make(chan struct{}, 1)}
}

// Ensure implements proxyroom.Images.
func (r *registry) Ensure(ctx context.Context, base string) (string, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return "", &proxyroom.RetriableError{Err: ctx.Err()}
	}
	// A registry that stops in the middle of an answer must not hold up all others for ever.
	ctx, cancel := context.WithTimeout(ctx, longestBuild)
	defer cancel()
	if err := image.CheckBase(base); err != nil {
		return "", fmt.Errorf("spec.baseImage: %w", err)
	}
	credentials, err := r.credentials(ctx)
	if err != nil {
		// A Secret is made, or mended, by somebody who need not know of this object.
		return "", &proxyroom.RetriableError{Err: err}
	}
	options := image.Options{
		Repository:  r.config.Registry + "/" + r.config.Repository,
		Insecure:    r.config.RegistryInsecure,
		Credentials: credentials,
		Program:     r.config.Binary,
	}
	if r.config.RegistryCAFile != "" {
		if options.Authorities, err = os.ReadFile(r.config.RegistryCAFile); err != nil {
			return "", &proxyroom.RetriableError{Err: fmt.Errorf("TUNNEL_REGISTRY_CA_FILE: %w", err)}
		}
	}
	builder, err := image.New(options)
	if err != nil {
		return "", fmt.Errorf("TUNNEL_REGISTRY, TUNNEL_REPOSITORY: %w", err)
	}
	made, err := builder.Ensure(ctx, base)
	switch {
	case err == nil:
		return made.Reference, nil
	case image.Retry(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "", &proxyroom.RetriableError{Err: err}
	default:
		return "", err
	}
}

func (r *registry) credentials(ctx context.Context) (image.Credentials, error) {
	if r.config.RegistrySecret == "" {
		return image.Credentials{}, nil
	}
	secret := &corev1.Secret{}
	if err := r.secrets.Get(ctx, types.NamespacedName{Namespace: r.namespace, Name: r.config.RegistrySecret}, secret); err != nil {
		return image.Credentials{}, fmt.Errorf("TUNNEL_REGISTRY_SECRET: %w", err)
	}
	found, err := image.ParseCredentials(secret.Data[corev1.DockerConfigJsonKey])
	if err != nil {
		return image.Credentials{}, fmt.Errorf("TUNNEL_REGISTRY_SECRET, Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return found, nil
}
