package registry

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// ResolveTimeout bounds one question to a registry.
const ResolveTimeout = 10 * time.Second

// Image is an image as a registry has it.
type Image struct {
	// Reference names it by its digest.
	Reference, Digest string
	// Tag is the tag that the Application names, empty for a digest alone.
	Tag string
}

// Resolve asks the registry which image a reference means.
func Resolve(ctx context.Context, ref name.Reference, logins Logins, through http.RoundTripper) (Image, error) {
	ctx, cancel := context.WithTimeout(ctx, ResolveTimeout)
	defer cancel()
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(through), remote.WithAuth(logins.For(ref.Context())),
		// The caller tries again, with delays of its own.
		remote.WithRetryPredicate(func(error) bool { return false }), remote.WithRetryStatusCodes(),
	}
	found, err := remote.Head(ref, options...)
	if err != nil {
		// Some registries answer no HEAD.
		answer, getErr := remote.Get(ref, options...)
		if getErr != nil {
			return Image{}, &Error{What: ref.String(), err: getErr}
		}
		found = &answer.Descriptor
	}
	if !found.MediaType.IsImage() && !found.MediaType.IsIndex() {
		return Image{}, &Error{What: ref.String(), err: errNoImage}
	}
	digest := found.Digest.String()
	return Image{Reference: ref.Context().Digest(digest).String(), Digest: digest}, nil
}

// errNoImage is the error for an answer without an image: the server is perhaps no registry.
var errNoImage = errors.New("what the registry has is no image")

// Error is a failed request to a registry. Its text contains nothing of the registry's answer but
// the codes of the protocol: a user who chooses the image also chooses the server, and could
// otherwise have the operator read out other servers' answers.
type Error struct {
	// What names the operation that failed.
	What string
	err  error
}

func (e *Error) Error() string { return e.What + ": " + e.why() }

// Unwrap is for errors.Is and errors.As. Its text must not be shown.
func (e *Error) Unwrap() error { return e.err }

// why repeats nothing of the answer but codes that are known: the registry is named by a tenant, and the text is in a status.
func (e *Error) why() string {
	var answer *transport.Error
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var lookup *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(e.err, errNoImage):
		return errNoImage.Error()
	case errors.Is(e.err, errForbiddenAddress):
		return errForbiddenAddress.Error()
	case errors.As(e.err, &answer):
		return answered(answer)
	case errors.As(e.err, &authority):
		return "its certificate is of an authority that is not trusted: see BUILD_CA_CONFIG_MAP"
	case errors.As(e.err, &invalid), errors.As(e.err, &hostname):
		return "its certificate is not valid for it"
	case errors.As(e.err, &lookup):
		return "the name of the registry is not known"
	case errors.Is(e.err, context.DeadlineExceeded), errors.As(e.err, &timeout) && timeout.Timeout():
		return "the registry does not answer"
	case errors.Is(e.err, context.Canceled):
		return "stopped before the registry answered"
	default:
		return "the registry cannot be reached, or is none"
	}
}

// answered shows the codes of the answer if all are in the specification of registries, and else the words of the HTTP status.
func answered(answer *transport.Error) string {
	var codes []string
	for _, d := range answer.Errors {
		codes = append(codes, string(d.Code))
	}
	detail := http.StatusText(answer.StatusCode)
	if len(codes) > 0 && known(codes) {
		detail = strings.Join(codes, ", ")
	}
	text := fmt.Sprintf("the registry answers %d (%s)", answer.StatusCode, detail)
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		text += ": it wants another login, or there is no such repository"
	case http.StatusNotFound:
		text += ": there is no such image"
	}
	return text
}

// known reports whether all codes are of the protocol.
func known(codes []string) bool {
	for _, code := range codes {
		switch transport.ErrorCode(code) {
		case transport.BlobUnknownErrorCode, transport.BlobUploadInvalidErrorCode, transport.BlobUploadUnknownErrorCode,
			transport.DigestInvalidErrorCode, transport.ManifestBlobUnknownErrorCode, transport.ManifestInvalidErrorCode,
			transport.ManifestUnknownErrorCode, transport.ManifestUnverifiedErrorCode, transport.NameInvalidErrorCode,
			transport.NameUnknownErrorCode, transport.SizeInvalidErrorCode, transport.TagInvalidErrorCode,
			transport.UnauthorizedErrorCode, transport.DeniedErrorCode, transport.UnsupportedErrorCode, transport.TooManyRequestsErrorCode:
		default:
			return false
		}
	}
	return true
}
