package tunnel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/tunnel/image"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy"
)

// registry builds images for a registry. It reads the credentials for each image, so that a password may change.
type registry struct {
	config    config.Tunnel
	secrets   client.Reader
	namespace string
}

const (
	// maxBuild is enough for a large base over a slow network.
	maxBuild = 15 * time.Minute
	// versionTimeout is enough for a program that only prints its version.
	versionTimeout = 10 * time.Second
)

func newRegistry(cfg config.Tunnel, secrets client.Reader, namespace string) tunnelproxy.Images {
	if cfg.Registry == "" {
		return nil
	}
	return &registry{config: cfg, secrets: secrets, namespace: namespace}
}

// Ping implements tunnelproxy.Images.
func (r *registry) Ping(ctx context.Context) error {
	builder, err := r.builder(image.Credentials{}, "")
	if err != nil {
		return nil //nolint:nilerr // Ensure reports what is wrong with the settings
	}
	return builder.Ping(ctx)
}

// Ensure implements tunnelproxy.Images. Package jobs builds one image at a time. An error that is not a RetriableError ends the
// pair: another attempt would give the same.
func (r *registry) Ensure(ctx context.Context, base string) (string, error) {
	// A registry that stops in the middle of an answer must not block all other builds.
	ctx, cancel := context.WithTimeout(ctx, maxBuild)
	defer cancel()
	if err := image.CheckBase(base); err != nil {
		return "", fmt.Errorf("spec.baseImage: %w", err)
	}
	credentials, err := r.credentials(ctx)
	if err != nil {
		// The Secret may be created or fixed without a change of this object.
		return "", &tunnelproxy.RetriableError{Err: err}
	}
	builder, err := r.builder(credentials, r.version(ctx))
	if err != nil {
		return "", err
	}
	made, err := builder.Ensure(ctx, base)
	switch {
	case err == nil:
		return made, nil
	case image.Retry(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "", &tunnelproxy.RetriableError{Err: err}
	default:
		return "", err
	}
}

// builder reads the authorities each time, so that a renewed file needs no restart. A file that cannot be read may come later.
func (r *registry) builder(credentials image.Credentials, version string) (*image.Builder, error) {
	options := image.Options{
		Repository:  r.config.Registry + "/" + r.config.Repository,
		Insecure:    r.config.RegistryInsecure,
		Credentials: credentials,
		Program:     r.config.Binary,
		Version:     version,
	}
	if r.config.RegistryCAFile != "" {
		var err error
		if options.Authorities, err = os.ReadFile(r.config.RegistryCAFile); err != nil {
			return nil, &tunnelproxy.RetriableError{Err: fmt.Errorf("TUNNEL_REGISTRY_CA_FILE: %w", err)}
		}
	}
	builder, err := image.New(options)
	if err != nil {
		return nil, fmt.Errorf("TUNNEL_REGISTRY, TUNNEL_REPOSITORY: %w", err)
	}
	return builder, nil
}

// version returns the version of the program, which may differ from the operator's; "" if it is unknown, so that the
// tag has its digest.
func (r *registry) version(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	said, err := exec.CommandContext(ctx, r.config.Binary, "--version").Output()
	if err != nil {
		return ""
	}
	return parseVersion(string(said))
}

// parseVersion returns the version of "berg-tunnel version v0.1.0", "" if there is none that a tag may have.
func parseVersion(said string) string {
	fields := strings.Fields(said)
	if len(fields) != 3 || fields[1] != "version" || !taggable.MatchString(fields[2]) {
		return ""
	}
	return fields[2]
}

// taggable leaves space for the rest of a tag that follows the version.
var taggable = regexp.MustCompile(`^[0-9A-Za-z_][0-9A-Za-z_.+-]{0,63}$`)

// credentials returns errors that name the Secret, and quote none of its content.
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
