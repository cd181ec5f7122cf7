package registry

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Stored is an image that a repository has.
type Stored struct {
	Digest string
	Tags   []string
	// Created is when its configuration says that it was created: of a build, the time of the commit. It is zero if the image has none.
	Created time.Time
}

// Repository is a repository of a registry. Each question to the registry is bounded by ResolveTimeout.
type Repository struct {
	Name    name.Repository
	options []remote.Option
}

// OpenRepository returns a repository. It asks the registry nothing.
func OpenRepository(repository string, logins Logins, through http.RoundTripper) (*Repository, error) {
	parsed, err := name.NewRepository(repository)
	if err != nil {
		return nil, err
	}
	return &Repository{Name: parsed, options: []remote.Option{
		remote.WithTransport(through), remote.WithAuth(logins.For(parsed)),
		remote.WithRetryPredicate(func(error) bool { return false }), remote.WithRetryStatusCodes(),
	}}, nil
}

// ask asks the registry one question.
func (r *Repository) ask(ctx context.Context, subject name.Reference, question func(options ...remote.Option) error) error {
	ctx, cancel := context.WithTimeout(ctx, ResolveTimeout)
	defer cancel()
	if err := question(append(slices.Clone(r.options), remote.WithContext(ctx))...); err != nil {
		text := r.Name.String()
		if subject != nil {
			text = subject.String()
		}
		return &Error{What: text, err: err}
	}
	return nil
}

// Tagged returns the tags of the repository by the digest of their image. A repository that does not exist has none. It asks one
// question for each tag. Images without a tag are not in the answer.
func (r *Repository) Tagged(ctx context.Context) (map[string][]string, error) {
	var tags []string
	if err := r.ask(ctx, nil, func(options ...remote.Option) (err error) {
		tags, err = remote.List(r.Name, options...)
		return err
	}); err != nil {
		if answers(err, http.StatusNotFound) {
			return nil, nil
		}
		return nil, err
	}
	tagged := map[string][]string{}
	for _, tag := range tags {
		digest, err := r.Digest(ctx, tag)
		switch {
		case answers(err, http.StatusNotFound): // it was deleted a moment ago
		case err != nil:
			return nil, err
		default:
			tagged[digest] = append(tagged[digest], tag)
		}
	}
	return tagged, nil
}

// Digest returns the digest that a tag refers to.
func (r *Repository) Digest(ctx context.Context, tag string) (digest string, err error) {
	ref := r.Name.Tag(tag)
	err = r.ask(ctx, ref, func(options ...remote.Option) error {
		found, err := remote.Head(ref, options...)
		if err != nil {
			return err
		}
		digest = found.Digest.String()
		return nil
	})
	return digest, err
}

// Created returns when an image was created; zero if it is no image of one platform, or its configuration has no time.
func (r *Repository) Created(ctx context.Context, digest string) (created time.Time, err error) {
	ref := r.Name.Digest(digest)
	err = r.ask(ctx, ref, func(options ...remote.Option) error {
		found, err := remote.Get(ref, options...)
		if err != nil || !found.MediaType.IsImage() {
			return err
		}
		image, err := found.Image()
		if err != nil {
			return err
		}
		config, err := image.ConfigFile()
		if err == nil {
			created = config.Created.Time
		}
		return err
	})
	if answers(err, http.StatusNotFound) {
		return created, nil
	}
	return created, err
}

// Delete deletes an image with its tags, by its digest. restore puts the image back: a registry deletes layers later, by its own
// rules. The manifest is read before it is deleted: restore needs it.
func (r *Repository) Delete(ctx context.Context, image Stored) (restore func(context.Context) error, err error) {
	ref := r.Name.Digest(image.Digest)
	var manifest *remote.Descriptor
	if err := r.ask(ctx, ref, func(options ...remote.Option) (err error) {
		manifest, err = remote.Get(ref, options...)
		return err
	}); err != nil {
		return nil, err
	}
	if err := r.ask(ctx, ref, func(options ...remote.Option) error { return remote.Delete(ref, options...) }); err != nil {
		return nil, err
	}
	for _, tag := range image.Tags { // some registries keep them
		if digest, err := r.Digest(ctx, tag); err == nil && digest == image.Digest {
			if err := r.ask(ctx, r.Name.Tag(tag), func(options ...remote.Option) error { return remote.Delete(r.Name.Tag(tag), options...) }); err != nil {
				return nil, err
			}
		}
	}
	return func(ctx context.Context) error { return r.restore(ctx, image, manifest) }, nil
}

// restore puts an image back that was deleted a moment ago, with the tags that no other image has got since.
func (r *Repository) restore(ctx context.Context, image Stored, manifest *remote.Descriptor) error {
	references := []name.Reference{r.Name.Digest(image.Digest)}
	for _, tag := range image.Tags {
		if _, err := r.Digest(ctx, tag); answers(err, http.StatusNotFound) {
			references = append(references, r.Name.Tag(tag))
		}
	}
	var errs []error
	for _, ref := range references {
		errs = append(errs, r.ask(ctx, ref, func(options ...remote.Option) error { return remote.Put(ref, manifest, options...) }))
	}
	return errors.Join(errs...)
}

// RefusesDeletion reports whether a registry deletes no images, or none for this login: asking again changes nothing.
func RefusesDeletion(err error) bool {
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return false
	}
	unsupported := slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool { return d.Code == transport.UnsupportedErrorCode })
	return unsupported || slices.Contains([]int{http.StatusMethodNotAllowed, http.StatusUnauthorized, http.StatusForbidden}, answer.StatusCode)
}

// answers reports whether an error is an answer of a registry with a status.
func answers(err error, status int) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == status
}
