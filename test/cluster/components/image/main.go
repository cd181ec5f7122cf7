// Command image assembles, serves and pushes container images without a daemon.
//
// It is a module of its own, so that what it needs never becomes a dependency of the operator.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `image builds, serves and pushes container images without a daemon.

  image build --ref REF --output FILE.tar [options] SRC:DST[:MODE]...
      Writes one image with one layer, made from nothing, as a tarball that
      "image push", "docker load" and "ctr images import" read. The same input
      gives the same bytes. SRC is a file or a directory.
        --ref REF            name and tag, such as ghcr.io/bergctf/samples/web:v0.1.0
        --output FILE.tar    where to write it
        --user UID[:GID]     numeric user of the processes          (65532:65532)
        --env K=V            environment variable; repeatable
        --label K=V          label; repeatable
        --entrypoint ARG     one word of the entrypoint; repeatable
        --dir PATH[:MODE]    an empty directory, such as /tmp:1777; repeatable
        --platform OS/ARCH   platform of the image                  (linux/amd64)

  image push --ca CA.crt --registry HOST:PORT FILE.tar...
      Pushes every tag of the tarballs: the repository and the tag stay,
      the registry is HOST:PORT.

  image index --ref REF [--push] [--ca CA.crt] FILE.tar...
      Puts images of several platforms under one name, and prints it with its
      digest, which depends on the tarballs alone. With --push it is pushed to
      the registry of REF, with the login that docker or podman has saved.

  image serve --listen ADDR:PORT --cert FILE --key FILE --dir DIR [--login FILE]
      Serves a registry over TLS until SIGTERM. What was pushed is kept in DIR
      and is there again after a restart. With --login no client pulls or pushes
      but the user of FILE, which holds USER:PASSWORD.

Under "go run -C DIR" relative paths are relative to DIR: give absolute ones.
`

func main() {
	// SIGTERM is how the cluster runner ends "serve"; an interrupted build or push must stop as well.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return errors.New("no command given: want build, push, index or serve")
	}
	var err error
	switch args[0] {
	case "build":
		err = build(args[1:], stdout)
	case "push":
		err = push(ctx, args[1:], stdout)
	case "index":
		err = makeIndex(ctx, args[1:], stdout)
	case "serve":
		err = serve(ctx, args[1:], stdout, stderr)
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
	default:
		return fmt.Errorf("unknown command %q: want build, push, index or serve", args[0])
	}
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return nil
}

// newFlagSet returns a flag set that reports problems only through its error.
func newFlagSet(command string) *flag.FlagSet {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	return flags
}

// requireFlags names every flag of the list that has no value.
func requireFlags(flags *flag.FlagSet, names ...string) error {
	var missing []string
	for _, name := range names {
		if flags.Lookup(name).Value.String() == "" {
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing %s", strings.Join(missing, ", "))
	}
	return nil
}

// stringList is a flag that may be given more than once.
type stringList []string

func (l *stringList) String() string { return strings.Join(*l, " ") }

func (l *stringList) Set(value string) error {
	*l = append(*l, value)
	return nil
}
