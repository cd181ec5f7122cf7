package registry

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Command is the first argument by which the operator's program pushes an image, and does
// nothing else. It runs in the pod of a build, in a step of its own: the commands of a
// Dockerfile are in another container, where no login is.
const Command = "push-image"

// Push is how that program is called.
type Push struct {
	// Root is a directory that the build could write to: nothing is read that a link in it
	// points to beyond it. Archive is the path of the archive in it.
	Root, Archive string
	// Destination is the reference to push to, and Tag another tag there, "" for none.
	Destination, Tag string
	// Time is the time of the commit in seconds since 1970, Revision the commit, Source the URL of its repository.
	Time, Revision, Source string
	// Login and Authorities are files; empty for none.
	Login, Authorities string
	// Digest, Size and Problem are the files that receive the results. Size is in bytes.
	Digest, Size, Problem string
}

// Args returns the arguments behind Command.
func (p Push) Args() []string {
	return []string{
		"--root=" + p.Root, "--archive=" + p.Archive, "--destination=" + p.Destination, "--tag=" + p.Tag,
		"--time=" + p.Time, "--revision=" + p.Revision, "--source=" + p.Source, "--login=" + p.Login,
		"--authorities=" + p.Authorities, "--digest=" + p.Digest, "--size=" + p.Size, "--problem=" + p.Problem,
	}
}

// Main is the program. It returns its exit code. The digest is written only after the push. A step that fails before has a
// problem, and no result that could be taken for an image.
func Main(args []string, errs io.Writer) int {
	var p Push
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&p.Root, "root", "", "directory")
	flags.StringVar(&p.Archive, "archive", "", "image, as docker save writes it, in that directory")
	flags.StringVar(&p.Destination, "destination", "", "reference to push to")
	flags.StringVar(&p.Tag, "tag", "", "another tag for the image")
	flags.StringVar(&p.Time, "time", "", "time of the commit, in seconds since 1970")
	flags.StringVar(&p.Revision, "revision", "", "commit")
	flags.StringVar(&p.Source, "source", "", "URL of the repository")
	flags.StringVar(&p.Login, "login", "", "file like ~/.docker/config.json")
	flags.StringVar(&p.Authorities, "authorities", "", "file with certificates of authorities, as PEM")
	flags.StringVar(&p.Digest, "digest", "", "file for the digest")
	flags.StringVar(&p.Size, "size", "", "file for the size in bytes")
	flags.StringVar(&p.Problem, "problem", "", "file for the problem")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pushed, err := p.push(ctx)
	if err == nil {
		err = errors.Join(WriteResult(p.Digest, pushed.digest), WriteResult(p.Size, strconv.FormatInt(pushed.size, 10)))
	}
	if err != nil {
		_, _ = fmt.Fprintln(errs, err)
		// It is reported twice; the exit code decides.
		_ = WriteResult(p.Problem, err.Error())
		return 1
	}
	_, _ = fmt.Fprintf(errs, "pushed %s@%s\n", p.Destination, pushed.digest)
	return 0
}

// pushed is an image in the registry, with the size of its layers and its configuration in bytes.
type pushed struct {
	digest string
	size   int64
}

func (p Push) push(ctx context.Context) (done pushed, err error) {
	destination, err := name.NewTag(p.Destination)
	if err != nil {
		return done, fmt.Errorf("--destination: %w", err)
	}
	logins, through, err := connect(p.Login, "BUILD_REGISTRY_SECRET", p.Authorities)
	if err != nil {
		return done, err
	}
	return p.pushThrough(ctx, destination, logins, through)
}

// The registry has the image before its second tag. A push that is repeated sends only the layers that are missing.
func (p Push) pushThrough(ctx context.Context, destination name.Tag, logins Logins, through http.RoundTripper) (done pushed, err error) {
	built, err := p.image()
	if err != nil {
		return done, fmt.Errorf("the builder left no image: %w", err)
	}
	image, err := p.finished(ctx, built)
	if err != nil {
		return done, fmt.Errorf("the image that was built: %w", err)
	}
	if done, err = describe(image); err != nil {
		return done, fmt.Errorf("the image that was built: %w", err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(through), remote.WithAuth(logins.For(destination.Context()))}
	if err := remote.Write(destination, image, options...); err != nil {
		return done, fmt.Errorf("the push was refused: %w", &Error{What: destination.String(), err: err})
	}
	if p.Tag != "" {
		if err := remote.Tag(destination.Context().Tag(p.Tag), image, options...); err != nil {
			return done, fmt.Errorf("the tag was refused: %w", &Error{What: destination.Context().Tag(p.Tag).String(), err: err})
		}
	}
	return done, nil
}

// describe counts the layers as they are stored in the registry, compressed, and without the manifest.
func describe(image v1.Image) (done pushed, err error) {
	digest, err := image.Digest()
	if err != nil {
		return done, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return done, err
	}
	done = pushed{digest.String(), manifest.Config.Size}
	for _, layer := range manifest.Layers {
		done.size += layer.Size
	}
	return done, nil
}

// finished returns the image with what the arguments say of its commit.
func (p Push) finished(ctx context.Context, image v1.Image) (v1.Image, error) {
	moment, err := ParseTime(p.Time)
	if err != nil {
		return nil, fmt.Errorf("--time: %w", err)
	}
	return finish(ctx, image, p.Root, commit{moment, p.Revision, p.Source})
}

// image opens the archive once for each part of it: each time below the root, as a build may have
// put anything at its path, also a link.
func (p Push) image() (v1.Image, error) {
	return tarball.Image(func() (io.ReadCloser, error) {
		root, err := os.OpenRoot(p.Root)
		if err != nil {
			return nil, err
		}
		defer func() { _ = root.Close() }() // it was only read
		// Opening must not block if the path is a pipe.
		file, err := root.OpenFile(p.Archive, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			_ = file.Close() // it was only read
			return nil, errors.New("it is no regular file")
		}
		return file, nil
	}, nil)
}
