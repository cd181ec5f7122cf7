package source

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/bergctf/berg-operator/internal/kibaship/registry"
)

// Command is the first argument by which the operator's program prepares a clone, and does nothing else.
const Command = "prepare-source"

// Prepare is how that program is called.
type Prepare struct {
	// Root is the directory of the repository, Dockerfile a path in it. Output is the file that the builder reads in its place.
	Root, Dockerfile, Output string
	// Time is the time of the commit in seconds since 1970.
	Time string
	// Cache is the repository of the cache, "" for none. Login and Authorities are files for it; empty for none.
	Cache, Login, Authorities string
	// Architecture, Cached, Warning and Problem are the files that receive the results. Cached is "true" or "false".
	Architecture, Cached, Warning, Problem string
}

// owner is the user to whom Docker gives the files of a context.
const owner = 0

// flags has a pointer to each field by the name of its argument.
func (p *Prepare) flags() map[string]*string {
	return map[string]*string{
		"root": &p.Root, "dockerfile": &p.Dockerfile, "output": &p.Output, "time": &p.Time, "cache": &p.Cache, "login": &p.Login, "authorities": &p.Authorities,
		"architecture": &p.Architecture, "cached": &p.Cached, "warning": &p.Warning, "problem": &p.Problem,
	}
}

// Args returns the arguments behind Command.
func (p Prepare) Args() []string {
	var args []string
	for _, name := range []string{
		"root", "dockerfile", "output", "time", "cache", "login", "authorities", "architecture", "cached", "warning", "problem",
	} {
		args = append(args, "--"+name+"="+*p.flags()[name])
	}
	return args
}

// Main is the program. It returns its exit code.
func Main(args []string, errs io.Writer) int {
	var p Prepare
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(errs)
	for name, field := range p.flags() {
		flags.StringVar(field, name, "", "see Prepare")
	}
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := p.prepare(owner); err != nil {
		_, _ = fmt.Fprintln(errs, err)
		// It is reported twice; the exit code decides.
		_ = registry.WriteResult(p.Problem, err.Error())
		return 1
	}
	return 0
}

// A cache that cannot be used is a warning and no failure: the build goes on without it.
func (p Prepare) prepare(owner int) error {
	if err := p.writeDockerfile(); err != nil {
		return err
	}
	moment, err := registry.ParseTime(p.Time)
	if err != nil {
		return fmt.Errorf("--time: %w", err)
	}
	if err := normalize(p.Root, owner, moment); err != nil {
		return fmt.Errorf("files of the repository: %w", err)
	}
	cached, warning := "false", ""
	if p.Cache != "" {
		cached = "true"
		if err := registry.CheckPush(p.Cache, p.Login, p.Authorities); err != nil {
			cached, warning = "false", "Built without the cache of BUILD_CACHE_REGISTRY: "+err.Error()
		}
	}
	return cmp.Or(
		registry.WriteResult(p.Architecture, runtime.GOARCH),
		registry.WriteResult(p.Cached, cached),
		registry.WriteResult(p.Warning, warning),
	)
}

// maxDockerfile is the size of a Dockerfile from which it is refused, in bytes.
const maxDockerfile = 1 << 20

// ignored is the end of the name of the file that says which files are no part of the context of one Dockerfile.
const ignored = ".dockerignore"

// writeDockerfile translates the Dockerfile. Its output is not in the context, which has the file as the repository has it.
func (p Prepare) writeDockerfile() error {
	root, err := os.OpenRoot(p.Root)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	content, err := read(root, p.Dockerfile)
	if err != nil {
		return err
	}
	if content, err = translate(content, runtime.GOARCH); err != nil {
		return fmt.Errorf("%s: %w", p.Dockerfile, err)
	}
	if err := os.WriteFile(p.Output, content, 0o600); err != nil {
		return err
	}
	content, err = read(root, p.Dockerfile+ignored)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	default:
		return os.WriteFile(p.Output+ignored, content, 0o600)
	}
}

// read reads a file below a root: a repository may have a link at any path.
func read(root *os.Root, name string) ([]byte, error) {
	file, err := root.Open(filepath.Clean(name))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", name, err)
	}
	defer func() { _ = file.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(file, maxDockerfile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s cannot be read: %w", name, err)
	case len(content) > maxDockerfile:
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxDockerfile)
	}
	return content, nil
}
