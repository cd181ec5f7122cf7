package importer

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// jailProgram is a word of a command line that starts a jail, or installs one.
var jailProgram = regexp.MustCompile(`^(?:nsjail|bwrap|bubblewrap|unshare|kctf_\w+)(?:\.git)?$`)

// startsJail reports whether a command names the program of a jail. Texts that it prints do not count.
func startsJail(text string) bool {
	return slices.ContainsFunc(commands(text), func(command string) bool {
		words := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t\r\"'`()=:,\\", r) })
		return len(words) > 0 && words[0] != "echo" && words[0] != "printf" &&
			slices.ContainsFunc(words, func(word string) bool { return jailProgram.MatchString(path.Base(word)) })
	})
}

// isJailImage reports whether an image is a jail, by the parts of its name.
func isJailImage(reference string) bool {
	name, _, _ := strings.Cut(strings.ToLower(reference), "@")
	parts := strings.Split(name, "/")
	last, _, _ := strings.Cut(parts[len(parts)-1], ":")
	parts[len(parts)-1] = last
	owner := ""
	if len(parts) > 1 {
		owner = parts[len(parts)-2]
	}
	return last == "nsjail" || last == "challenge-jail" || strings.HasPrefix(last, "nsjail-") || slices.Contains(parts, "kctf-docker") ||
		last == "jail" && slices.Contains([]string{"pwn.red", "redpwn"}, owner)
}

// isJail reports whether the programs of a service make namespaces, or may make them.
func (s *service) isJail() bool { return s.jail || s.startsJail() }

// startsJail reports whether the programs of a service make namespaces: by base images, commands and start scripts.
func (s *service) startsJail() bool {
	if isJailImage(s.named) || slices.ContainsFunc(s.image.bases, isJailImage) || s.image.jail {
		return true
	}
	return startsJail(strings.Join(s.image.program(), " ")) ||
		slices.ContainsFunc(s.image.named(s.image.program()), func(f startFile) bool { return strings.HasPrefix(f.text, "#!") && startsJail(f.text) })
}

// nameScripts names commands at the start that change flags with special characters, and scripts that no node starts.
func (d *draft) nameScripts(s *service) {
	for _, f := range append([]startFile{{text: strings.Join(s.image.program(), " ")}}, s.image.named(s.image.program())...) {
		if found := rules.BreaksFlag(f.text, s.container.DynamicFlag); found != "" {
			d.result.Lost = append(d.result.Lost, d.scriptNote(s, f, found, rules.BreaksFlagAdvice))
		}
		first, _, _ := strings.Cut(f.text, "\n")
		switch {
		case strings.HasPrefix(first, "\ufeff#!"):
			d.lost(s, "build", f.name, "begins with a byte order mark, so that no interpreter is found: save it as UTF-8 without it")
		case strings.HasPrefix(first, "#!") && strings.HasSuffix(first, "\r"):
			d.lost(s, "build", f.name, "has Windows line endings, so that its interpreter is not found: save it with LF (git config core.autocrlf input)")
		}
	}
}
