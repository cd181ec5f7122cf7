package importer

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// A flag is put at a path only if COPY instructions say it for certain. Commands of RUN and of scripts are searched for
// words, not interpreted: if one of them may put a flag elsewhere, the author is asked.
var (
	separator = regexp.MustCompile(`&&|\|\||[;|\n]`)
	// setsReaders are commands that leave a file where it is.
	setsReaders = regexp.MustCompile(`^(?:chmod|chown|chgrp)\s`)
	// readableMode is a mode with which all users can read a file.
	readableMode = regexp.MustCompile(`^(?:chmod\s+(?:-\w+\s+)*)?(?:[0-7]?[0-7]{2}[4-7]|[ugo]*[ao]?\+[rx]+)\b`)
	// packs matches a program that puts files into an image of a disk or an archive, from which a virtual machine starts.
	packs   = regexp.MustCompile(`\b(?:cpio|mksquashfs|mke2fs|mkfs\.\w+|genext2fs|xorriso|genisoimage|mkisofs)\b`)
	removes = regexp.MustCompile(`^(?:mv|rm|shred|unlink)\s`)
	// partOfName is the name of a flag with a part that only the build knows.
	partOfName = regexp.MustCompile(`(?i)^flag[_-]?(?:[*{$].*)?$`)
)

// commands splits a text for a shell into its commands.
func commands(text string) (all []string) {
	for _, command := range separator.Split(text, -1) {
		if command = strings.TrimSpace(command); command != "" && command[0] != '#' {
			all = append(all, command)
		}
	}
	return all
}

// namesFlag reports whether a command names a file with the flag.
func namesFlag(command string) bool {
	words := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`<>()=,\\", r) })
	return slices.ContainsFunc(words, func(word string) bool {
		base := path.Base(word)
		return isFlagFile(base) || partOfName.MatchString(base)
	})
}

// flags are the files of the image with a flag.
func (i image) flags() []copied {
	return slices.DeleteFunc(slices.Clone(i.copies), func(c copied) bool { return !c.isFlag() })
}

// namesFolder reports whether a command names a folder above a file with the flag.
func (i image) namesFolder(command string) bool {
	return slices.ContainsFunc(strings.Fields(command)[1:], func(word string) bool {
		folder := path.Join("/", absolute(i.workdir, strings.TrimSuffix(strings.Trim(word, `"'`), "*")))
		return folder != "/" && slices.ContainsFunc(i.flags(), func(c copied) bool { return strings.HasPrefix(c.to, folder+"/") })
	})
}

// searchRuns finds commands of RUN, and of scripts that it starts, which may put a flag elsewhere or restrict its readers.
func (i *image) searchRuns() {
	for _, run := range i.runs {
		texts := []startFile{{text: run.text}}
		for _, f := range i.named(strings.Fields(run.text)) {
			if strings.HasPrefix(f.text, "#!") {
				texts = append(texts, f)
			}
		}
		for _, f := range texts {
			for _, command := range commands(f.text) {
				source := sourceLine{run.number, strings.TrimPrefix(f.name+": "+command, ": ")}
				named, above := namesFlag(command), i.namesFolder(command)
				switch {
				case named && !setsReaders.MatchString(command), above && removes.MatchString(command), packs.MatchString(command) && len(i.flags()) > 0 && !strings.Contains(command, "install"):
					i.unclear = append(i.unclear, source)
				case (named || above) && strings.HasPrefix(command, "chmod") && !readableMode.MatchString(command):
					i.restricted = append(i.restricted, source)
				}
			}
		}
	}
	i.runs = nil
}

// openPath returns a line after which the path of a flag is not certain. The flag of an instance is read-only: a script
// that changes the file when the container starts would fail.
func (i image) openPath() (source sourceLine, found bool) {
	if len(i.unclear) > 0 {
		return i.unclear[0], true
	}
	flags := i.flags()
	if len(flags) > 0 && i.ignored(flags[0]) {
		return sourceLine{text: ".dockerignore: " + flags[0].from}, true
	}
	for _, f := range i.named(i.program()) {
		if len(flags) == 0 || !strings.HasPrefix(f.text, "#!") {
			continue
		}
		for _, command := range commands(f.text) {
			_, target, written := strings.Cut(command, ">")
			changes := removes.MatchString(command) || setsReaders.MatchString(command)
			if changes && (namesFlag(command) || i.namesFolder(command)) || written && namesFlag(target) {
				return sourceLine{text: f.name + ": " + command}, true
			}
		}
	}
	return sourceLine{}, false
}

// ignored reports whether the context may leave out a file.
func (i image) ignored(c copied) bool {
	if c.from == "" {
		return false
	}
	for pattern := range strings.FieldsSeq(i.read(".dockerignore")) {
		pattern = strings.Trim(strings.TrimPrefix(pattern, "**/"), "/")
		for name := c.from; name != "."; name = path.Dir(name) {
			whole, _ := path.Match(pattern, name)
			base, _ := path.Match(pattern, path.Base(name))
			if whole || base {
				return true
			}
		}
	}
	return false
}
