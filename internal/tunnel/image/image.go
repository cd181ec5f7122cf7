package image

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	// The operator's image has no root certificates, and base images come from public registries.
	_ "golang.org/x/crypto/x509roots/fallback"
)

// Options are the options of a Builder.
type Options struct {
	// Repository is where images are pushed to, without a tag: registry.example:5000/tunnels/dcptun_developer_ms.
	Repository string
	// Insecure allows HTTP for the registry of Repository only.
	Insecure bool
	// Authorities are certificates in PEM that are trusted for registries, in addition to the system's.
	Authorities []byte
	// Credentials are for both registries.
	Credentials Credentials
	// Program is the file that the image runs.
	Program string
	// Version of the program. If it begins with dev or v0.0.0-dev, the tag has the program's digest too.
	Version string
	// Architecture of the program; empty for the architecture of this process.
	Architecture string
}

// Builder builds images.
type Builder struct {
	options    Options
	repository name.Repository
	transport  http.RoundTripper
	platform   v1.Platform
}

// The errors of Ensure. Retry says whether another attempt makes sense.
var (
	// ErrBase: the base image cannot be pulled.
	ErrBase = errors.New("the base image cannot be pulled")
	// ErrPush: the image cannot be pushed.
	ErrPush = errors.New("the image cannot be pushed")
	// ErrRegistry: the registry cannot be asked for the image.
	ErrRegistry = errors.New("the registry cannot be asked for the image")
	// ErrInput: the name of an image, or the program, is not usable.
	ErrInput = errors.New("the image cannot be made")
)

// New returns a builder, or an error that is ErrInput.
func New(options Options) (*Builder, error) {
	var strict []name.Option
	if options.Insecure {
		strict = append(strict, name.Insecure)
	}
	repository, err := name.NewRepository(options.Repository, append(strict, name.StrictValidation)...)
	if err != nil {
		return nil, fmt.Errorf("%w: repository %q: want REGISTRY/NAME without a tag: %w", ErrInput, options.Repository, err)
	}
	if options.Architecture == "" {
		options.Architecture = runtime.GOARCH
	}
	// The default transport has no timeouts, and does not trust Authorities.
	roundTripper := remote.DefaultTransport.(*http.Transport).Clone()
	roundTripper.ResponseHeaderTimeout = timeout
	roundTripper.TLSHandshakeTimeout = timeout
	if len(options.Authorities) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(options.Authorities) {
			return nil, fmt.Errorf("%w: the registry's authorities have no certificate in PEM", ErrInput)
		}
		roundTripper.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	return &Builder{
		options:    options,
		repository: repository,
		transport:  roundTripper,
		platform:   v1.Platform{OS: "linux", Architecture: options.Architecture},
	}, nil
}

// CheckBase returns an error, which is ErrInput, if the name of a base image is invalid.
func CheckBase(base string) error {
	if _, err := name.ParseReference(base); err != nil {
		return fmt.Errorf("%w: base image %q is not a valid name of an image: %w", ErrInput, base, err)
	}
	return nil
}

// timeout is how long to wait for a connection to a registry and for its first answer.
const timeout = 30 * time.Second

// Ensure returns the image for a base, by its digest. It builds and pushes the image if the registry does not have it, or
// has it with another digest of the base or another program. If the base cannot be reached and the image exists, that image
// is returned. Package jobs builds one image at a time. If it is interrupted, nothing is left but layers without an image, and
// the next call pushes the rest.
func (b *Builder) Ensure(ctx context.Context, base string) (reference string, err error) {
	baseReference, err := name.ParseReference(base, b.insecureAt(base)...)
	if err != nil {
		return "", CheckBase(base)
	}
	program, err := fileDigest(b.options.Program)
	if err != nil {
		return "", fmt.Errorf("%w: read the program: %w", ErrInput, err)
	}
	tag := b.repository.Tag(Tag(b.options.Version, program, base, b.options.Architecture))
	present, err := b.present(ctx, tag)
	if err != nil {
		return "", fmt.Errorf("%w %s: %w", ErrRegistry, tag, err)
	}
	source, err := remote.Get(baseReference, b.how(ctx)...)
	if present != nil && present.program == program && (err != nil || present.baseDigest == source.Digest.String()) {
		return present.reference, nil //nolint:nilerr // the image exists, and a base that cannot be read is no reason to build it again
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrBase, base, err)
	}
	baseImage, err := source.Image()
	if err != nil {
		return "", fmt.Errorf("%w: %s for %s: %w", ErrBase, base, b.platform, err)
	}
	if err := b.suits(baseImage); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrBase, base, err)
	}
	made, err := assemble(baseImage, b.options.Program, program, source.Digest.String())
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrBase, base, err)
	}
	digest, err := made.Digest()
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrBase, base, err)
	}
	if err := remote.Write(tag, made, b.how(ctx)...); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrPush, tag, err)
	}
	return b.repository.Digest(digest.String()).String(), nil
}

// suits returns an error if an image is for another platform: a base that is not an index has only one.
func (b *Builder) suits(base v1.Image) error {
	config, err := base.ConfigFile()
	if err != nil {
		return err
	}
	if config.OS != b.platform.OS || config.Architecture != b.platform.Architecture {
		return fmt.Errorf("it is for %s/%s, and the proxy for %s", config.OS, config.Architecture, b.platform)
	}
	return nil
}

// found is an image in the registry.
type found struct {
	reference, baseDigest, program string
}

// present returns the image of a tag, nil if there is none. An image that another program has put under the tag has other labels,
// and is replaced.
func (b *Builder) present(ctx context.Context, tag name.Tag) (*found, error) {
	descriptor, err := remote.Get(tag, b.how(ctx)...)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	image, err := descriptor.Image()
	if err != nil {
		return nil, nil //nolint:nilerr // it is not an image, and is replaced
	}
	config, err := image.ConfigFile()
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &found{
		reference:  b.repository.Digest(descriptor.Digest.String()).String(),
		baseDigest: config.Config.Labels[BaseDigestLabel],
		program:    config.Config.Labels[ProgramDigestLabel],
	}, nil
}

// Tag returns the tag of an image: the version of the program, with the program's digest for a development version, and a
// hash of base image and architecture.
func Tag(version, programDigest, base, architecture string) string {
	version = strings.TrimPrefix(version, "v0.0.0-")
	if version == "" || strings.HasPrefix(version, "dev") {
		version = "dev_" + programDigest[:12]
	}
	// Build metadata follows a +, which is not allowed in a tag.
	version = strings.ReplaceAll(version, "+", "_")
	sum := sha256.Sum256([]byte(base + " " + architecture))
	return version + "-" + hex.EncodeToString(sum[:])[:12]
}

func (b *Builder) how(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx),
		remote.WithTransport(b.transport),
		remote.WithAuthFromKeychain(b.options.Credentials),
		remote.WithPlatform(b.platform),
		remote.WithUserAgent("berg-operator"),
	}
}

// insecureAt returns how to read the name of a base: Insecure holds for base images in the same registry too.
func (b *Builder) insecureAt(base string) []name.Option {
	parsed, err := name.ParseReference(base)
	if err == nil && b.options.Insecure && parsed.Context().RegistryStr() == b.repository.RegistryStr() {
		return []name.Option{name.Insecure}
	}
	return nil
}

// Ping returns nil if the registry that images are pushed to answers.
func (b *Builder) Ping(ctx context.Context) error {
	if _, err := transport.Ping(ctx, b.repository.Registry, b.transport); err != nil {
		return fmt.Errorf("the registry %s does not answer: %w", b.repository.RegistryStr(), err)
	}
	return nil
}

// Retry reports whether a failed operation may work later by itself: a network is down, or a registry is busy. Invalid
// names, missing rights and missing images need a person. Other errors are repeated only after a change of the object or the
// settings.
func Retry(err error) bool {
	if err == nil || errors.Is(err, ErrInput) {
		return false
	}
	var answer *transport.Error
	if errors.As(err, &answer) {
		return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusRequestTimeout
	}
	// Without an answer the network failed, unless the certificate is wrong. An answer may also break off.
	var wrongPeer *tls.CertificateVerificationError
	var network net.Error
	return (errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF)) && !errors.As(err, &wrongPeer)
}

func isMissing(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}
