// Package toolbox is what every test image contains in addition to its own service: a few small commands to
// look at a container from inside, since the images hold no shell.
//
// They are reached by name, because the image holds links such as /usr/bin/cat, or as the first
// argument of the program itself: "web cat /flag.txt".
package toolbox

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Command is one of the small commands. It reads and writes only through its streams.
type Command func(ctx context.Context, streams Streams, args []string) error

// Streams are the standard streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Commands returns the commands by name.
func Commands() map[string]Command {
	return map[string]Command{
		"cat":      cat,
		"exhaust":  exhaust,
		"get":      get,
		"id":       id,
		"lookup":   lookup,
		"ls":       ls,
		"printenv": printenv,
		"probe":    probe,
		"run":      run,
		"seize":    seize,
		"spoof":    spoof,
		"tcp":      tcp,
		"udp":      udp,
	}
}

// Names returns the names of the commands in order: the links an image needs.
func Names() []string { return slices.Sorted(maps.Keys(Commands())) }

// Main is the main function of an image's program. Called by the name of a command, or with one as
// the first argument, it runs that and exits; without arguments it runs the service until SIGTERM.
func Main(service func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	streams := Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}

	err := dispatch(ctx, streams, os.Args, service)
	// The exit code of a program that was run is passed on.
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && exit.Exited():
		os.Exit(exit.ExitCode())
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, streams Streams, argv []string, service func(ctx context.Context) error) error {
	commands := Commands()
	if command, known := commands[filepath.Base(argv[0])]; known {
		return command(ctx, streams, argv[1:])
	}
	if len(argv) < 2 {
		return service(ctx)
	}
	command, known := commands[argv[1]]
	if !known {
		return fmt.Errorf("unknown command %q: want one of %s, or none to start the service",
			argv[1], strings.Join(Names(), ", "))
	}
	if err := command(ctx, streams, argv[2:]); err != nil {
		return fmt.Errorf("%s: %w", argv[1], err)
	}
	return nil
}

// newFlagSet returns a flag set that reports problems only through its error.
func newFlagSet() *flag.FlagSet {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}
