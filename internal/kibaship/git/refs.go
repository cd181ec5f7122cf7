package git

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
)

// The prefixes of refs.
const (
	Heads = "refs/heads/"
	Tags  = "refs/tags/"
	// HEAD is the default branch.
	HEAD = "HEAD"
)

// Ref is a branch or a tag, or HEAD.
type Ref struct {
	// Name is the full name, such as refs/heads/main. For HEAD it is the branch that HEAD stands for.
	Name string
	// Commit is the commit that it names, also for a tag that is an object.
	Commit string
	// Default: HEAD stands for this branch.
	Default bool
}

var sha = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// ListRefs returns the refs whose full names have one of the prefixes, as the server sorts them. Servers may return others too.
func (r Repository) ListRefs(ctx context.Context, prefixes ...string) (all []Ref, err error) {
	arguments := []string{"peel", "symrefs"}
	for _, prefix := range prefixes {
		arguments = append(arguments, "ref-prefix "+prefix)
	}
	err = r.ask(ctx, request("ls-refs", arguments...), func(answer io.Reader) error {
		for {
			line, flushed, err := readLine(answer)
			if err != nil || flushed {
				return err
			}
			ref, ok := parseRef(string(bytes.TrimSuffix(line, []byte("\n"))))
			if !ok {
				return errProtocol
			}
			if ref.Name != "" {
				all = append(all, ref)
			}
		}
	})
	return all, err
}

// parseRef parses a line: commit, name, and attributes. A ref without a commit has no name. Unknown attributes are skipped, as
// the protocol may get more of them.
func parseRef(line string) (ref Ref, ok bool) {
	fields := strings.Split(line, " ")
	if len(fields) < 2 {
		return ref, false
	}
	if fields[0] == "unborn" {
		return ref, true
	}
	ref.Commit, ref.Name = fields[0], fields[1]
	for _, attribute := range fields[2:] {
		if peeled, found := strings.CutPrefix(attribute, "peeled:"); found {
			ref.Commit = peeled
		}
		if target, found := strings.CutPrefix(attribute, "symref-target:"); found && ref.Name == HEAD {
			ref.Name, ref.Default = target, true
		}
	}
	return ref, sha.MatchString(ref.Commit)
}
