package source

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/bergctf/berg-operator/internal/kibaship/registry"
)

// Command is the first argument by which the operator's program prepares a clone, and does nothing else.
const Command = "prepare-source"

// Prepare is how that program is called.
type Prepare struct {
	// Root is the directory of the repository, Dockerfile a path in it.
	Root, Dockerfile string
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
		"root": &p.Root, "dockerfile": &p.Dockerfile, "time": &p.Time, "cache": &p.Cache, "login": &p.Login, "authorities": &p.Authorities,
		"architecture": &p.Architecture, "cached": &p.Cached, "warning": &p.Warning, "problem": &p.Problem,
	}
}

// Args returns the arguments behind Command.
func (p Prepare) Args() []string {
	var args []string
	for _, name := range []string{
		"root", "dockerfile", "time", "cache", "login", "authorities", "architecture", "cached", "warning", "problem",
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

func (p Prepare) prepare(owner int) error {
	if err := p.checkDockerfile(); err != nil {
		return err
	}
	at, err := registry.ParseTime(p.Time)
	if err != nil {
		return fmt.Errorf("--time: %w", err)
	}
	if err := normalize(p.Root, owner, at); err != nil {
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

// checkDockerfile opens the Dockerfile below the root: a repository may have a link in its place.
func (p Prepare) checkDockerfile() error {
	root, err := os.OpenRoot(p.Root)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	file, err := root.Open(filepath.Clean(p.Dockerfile))
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", p.Dockerfile, err)
	}
	defer func() { _ = file.Close() }() // as above
	content, err := io.ReadAll(io.LimitReader(file, maxDockerfile+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s cannot be read: %w", p.Dockerfile, err)
	case len(content) > maxDockerfile:
		return fmt.Errorf("%s is larger than %d bytes", p.Dockerfile, maxDockerfile)
	}
	if err := check(content, runtime.GOARCH); err != nil {
		return fmt.Errorf("%s: %w", p.Dockerfile, err)
	}
	return nil
}
