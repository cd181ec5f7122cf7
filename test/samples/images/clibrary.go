package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	compiler   = "clang-19"
	muslHeader = "/usr/include/x86_64-linux-musl"
	muslLib    = "/usr/lib/x86_64-linux-musl"
)

// resolvers compiles one source for each of the two usual C libraries, and returns what an image holds of
// them, each as "from:to".
func (b builder) resolvers(ctx context.Context) ([]string, error) {
	source := filepath.Join(b.root, "test/samples/images/resolvers/libc/resolve.c")
	glibc, musl := filepath.Join(b.work, "resolve-glibc"), filepath.Join(b.work, "resolve-musl")
	for _, args := range [][]string{
		{"-O1", "-o", glibc, source},
		{
			"-O1", "-static", "-nostdinc", "-nostdlib", "-isystem", muslHeader, "-o", musl,
			muslLib + "/crt1.o", source, muslLib + "/libc.a",
		},
	} {
		if err := b.run(ctx, b.root, nil, compiler, args...); err != nil {
			return nil, fmt.Errorf("%w: are clang-19, libc6-dev and musl-dev installed?", err)
		}
	}
	files := []string{glibc + ":/usr/bin/resolve-glibc", musl + ":/usr/bin/resolve-musl"}
	// musl is in the program itself, glibc is a separate file, as in most images: it loads parts of its resolver.
	for _, library := range []struct{ name, place string }{
		{"libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"},
		{"ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"},
	} {
		file, err := libraryFile(ctx, library.name)
		if err != nil {
			return nil, err
		}
		files = append(files, file+":"+library.place)
	}
	return files, nil
}

func libraryFile(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, compiler, "-print-file-name="+name).Output()
	if err != nil {
		return "", fmt.Errorf("%s: look for %s: %w", compiler, name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// bubblewrap returns Debian's program of this name and the libraries that it loads, each as "from:to".
func (b builder) bubblewrap(ctx context.Context) ([]string, error) {
	const program = "/usr/bin/bwrap"
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: is bubblewrap installed? hack/packages jails installs it", program, err)
	}
	files := []string{program + ":" + program + ":0755"}
	// A line is "NAME => PATH (ADDRESS)", of the loader itself "PATH (ADDRESS)".
	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if !filepath.IsAbs(word) {
				continue
			}
			file, err := filepath.EvalSymlinks(word)
			if err != nil {
				return nil, err
			}
			files = append(files, file+":"+word+":0755")
		}
	}
	return files, nil
}
