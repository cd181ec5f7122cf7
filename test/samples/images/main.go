// Command images builds the images of the sample challenges and of the tests, without a daemon: one
// static Go program each, with links to the small commands of the toolbox.
//
//	go run ./test/samples/images --output dist/images              # all but jail and resolvers
//	go run ./test/samples/images --output dist/images web pwn      # only these
//	go run ./test/samples/images --output dist/images jail         # needs Debian's bubblewrap
//	go run ./test/samples/images --output dist/images resolvers    # needs a C compiler
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bergctf/berg-operator/test/samples/images/internal/toolbox"
)

// Where the references of the images point to. The samples in config/*/samples use the same.
const (
	repository = "ghcr.io/bergctf/samples"
	tag        = "v0.1.0"
)

// image is one image to build. Its program is the package of its name in this folder.
type image struct {
	name string
	// files are further contents: from a path in this folder to an absolute path of the image.
	files map[string]string
	// user is UID:GID of the container's process. Default: 65532:65532.
	user string
	// onRequest images are built where they are named only: they need more than Go.
	onRequest bool
	// compiled returns more contents, each as "from:to", that something else than Go makes.
	compiled func(builder, context.Context) ([]string, error)
}

var images = []image{
	{name: "jail", user: "0:0", onRequest: true, compiled: builder.bubblewrap},
	{name: "pwn"},
	{name: "resolvers", user: "0:0", onRequest: true, compiled: builder.resolvers},
	{name: "shop-bot"},
	{name: "shop-database"},
	{name: "shop-web"},
	{name: "solver"},
	// Root, as players are who have broken out of a program: what holds against it
	// holds against all.
	{name: "toolbox", user: "0:0"},
	{name: "web", files: map[string]string{"web/articles": "/srv/articles"}},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "images: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	output := flags.String("output", "dist/images", "folder for the tarballs, one NAME.tar per image")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := selectImages(flags.Args())
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	target, err := filepath.Abs(*output)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "berg-images-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	builder := builder{root: root, work: work, output: target, log: stdout}
	if err := builder.compile(ctx, wanted); err != nil {
		return err
	}
	for _, image := range wanted {
		if err := builder.assemble(ctx, image, image.reference()); err != nil {
			return err
		}
	}
	return nil
}

// selectImages returns the images of these names, or all that need nothing but Go if there is no name.
func selectImages(names []string) ([]image, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(images), func(i image) bool { return i.onRequest }), nil
	}
	var selected []image
	for _, name := range names {
		i := slices.IndexFunc(images, func(image image) bool { return image.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no image %q", name)
		}
		selected = append(selected, images[i])
	}
	return selected, nil
}

func (i image) reference() string { return repository + "/" + i.name + ":" + tag }

// moduleRoot returns the folder of the operator's go.mod.
func moduleRoot(ctx context.Context) (string, error) {
	file, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for the module: %w", err)
	}
	path := strings.TrimSpace(string(file))
	if filepath.Base(path) != "go.mod" {
		return "", errors.New("not inside a Go module: run it from the repository")
	}
	return filepath.Dir(path), nil
}

type builder struct {
	root   string // of the operator's module
	work   string // temporary folder
	output string
	log    io.Writer
}

// compile builds the programs and the image tool, each set by one call of go build.
func (b builder) compile(ctx context.Context, wanted []image) error {
	// -buildvcs=false: the state of the work tree must not change an image whose sources did not.
	programs := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", b.programs() + "/"}
	for _, image := range wanted {
		programs = append(programs, "./test/samples/images/"+image.name)
	}
	if err := os.Mkdir(b.programs(), 0o755); err != nil {
		return err
	}
	if err := b.run(ctx, b.root, []string{"GOOS=linux", "GOARCH=amd64"}, "go", programs...); err != nil {
		return err
	}
	return b.run(ctx, filepath.Join(b.root, "test/cluster/components/image"), nil,
		"go", "build", "-trimpath", "-buildvcs=false", "-o", b.imageTool(), ".")
}

func (b builder) programs() string  { return filepath.Join(b.work, "programs") }
func (b builder) imageTool() string { return filepath.Join(b.work, "image") }

func (b builder) assemble(ctx context.Context, image image, reference string) error {
	bin := filepath.Join(b.work, "bin-"+image.name)
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(b.programs(), image.name), filepath.Join(bin, image.name)); err != nil {
		return err
	}
	for _, command := range toolbox.Names() {
		if err := os.Symlink(image.name, filepath.Join(bin, command)); err != nil {
			return err
		}
	}
	args := []string{
		"build", "--ref", reference, "--output", filepath.Join(b.output, image.name+".tar"),
		"--entrypoint", "/usr/bin/" + image.name,
		"--label", "org.opencontainers.image.title=" + image.name,
		"--label", "org.opencontainers.image.source=https://github.com/bergctf/berg-operator",
		"--dir", "/tmp:1777",
	}
	if image.user != "" {
		args = append(args, "--user", image.user)
	}
	args = append(args, bin+":/usr/bin")
	for source, destination := range image.files {
		args = append(args, filepath.Join(b.root, "test/samples/images", source)+":"+destination)
	}
	if image.compiled != nil {
		files, err := image.compiled(b, ctx)
		if err != nil {
			return err
		}
		args = append(args, files...)
	}
	return b.run(ctx, b.root, nil, b.imageTool(), args...)
}

// run runs a program without cgo: nothing in an image made from nothing could load a library.
func (b builder) run(ctx context.Context, dir string, env []string, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = dir
	command.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	command.Stdout, command.Stderr = b.log, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(program), args[0], err)
	}
	return nil
}
