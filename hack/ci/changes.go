package main

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// changes lists the paths that differ from what has landed, uncommitted ones included, and says what that is. Where
// git cannot tell, there is one path that concerns every stage.
func changes(ctx context.Context) (paths []string, base string) {
	base = landed(ctx)
	tracked, err := git(ctx, "diff", "--name-only", "--no-renames", base)
	if err == nil {
		var others string
		others, err = git(ctx, "ls-files", "--others", "--exclude-standard")
		paths = append(strings.Fields(tracked), strings.Fields(others)...)
	}
	if err != nil || len(paths) == 0 {
		return []string{"unknown"}, base
	}
	slices.Sort(paths)
	return slices.Compact(paths), base
}

// landed is the commit that the change is compared with.
func landed(ctx context.Context) string {
	if base := os.Getenv("CI_BASE"); base != "" {
		return base
	}
	head, err := git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "HEAD~1"
	}
	for _, branch := range []string{"@{upstream}", "origin/HEAD", "origin/main"} {
		if base, err := git(ctx, "merge-base", "HEAD", branch); err == nil && base != head {
			return base
		}
	}
	return "HEAD~1"
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	return strings.TrimSpace(string(out)), err
}
