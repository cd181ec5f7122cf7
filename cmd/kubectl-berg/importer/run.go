package importer

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// owned is who owns a file of an image, and what its bits allow. An owner of "" is root, and a mode of 0 is not given.
type owned struct {
	user, group string
	mode        int32
}

var (
	separators = regexp.MustCompile(`&&|\|\||[;|\n]`)
	written    = regexp.MustCompile(`^(?:echo|printf)\s+(?:-\w+\s+)*(.+?)\s*>\s*(\S+)$`)
	writes     = regexp.MustCompile(`^(?:cat\s[^|;&]*>|tee\s)\s*([^\s<>]+)`)
	random     = regexp.MustCompile("`[^`]*`|\\$\\{?RANDOM\\}?")
)

// entropy is what stands in the path of a flag for what players cannot guess.
const entropy = "{entropy}"

// run follows files that were copied, and finds flags that are written, through the commands of a RUN instruction.
func (s *stage) run(text string, values map[string]string) {
	text = variable.ReplaceAllStringFunc(withEntropy(text), func(v string) string {
		if value, known := values[variable.FindStringSubmatch(v)[1]]; known {
			return value
		}
		return v
	})
	for _, command := range separators.Split(text, -1) {
		command = strings.TrimSpace(command)
		if found := written.FindStringSubmatch(command); found != nil && isFlagFile(found[2]) {
			s.copies = append(s.copies, copied{to: absolute(s.workdir, unquote(found[2])), text: unquote(found[1])})
			continue
		}
		deep := false
		words := slices.DeleteFunc(strings.Fields(command), func(w string) bool {
			deep = deep || w == "-R" || w == "--recursive"
			return strings.HasPrefix(w, "-")
		})
		if len(words) > 1 && words[0] == "rm" {
			s.remove(words[1:])
		}
		if len(words) < 3 {
			continue
		}
		last := unquote(words[len(words)-1])
		for n := range s.copies {
			c := &s.copies[n]
			if !slices.ContainsFunc(words[1:], func(w string) bool { return covers(path.Clean(absolute(s.workdir, unquote(w))), c.to, deep) }) {
				continue
			}
			switch words[0] {
			case "mv":
				if strings.HasSuffix(last, "/") {
					last += path.Base(c.to)
				}
				c.to = absolute(s.workdir, last)
			case "chmod":
				c.mode = changedMode(c.mode, words[1])
			case "chown":
				c.chown(words[1])
			case "chgrp":
				c.group = words[1]
			}
		}
	}
}

// remove forgets files that rm takes out of the image.
func (s *stage) remove(paths []string) {
	for _, word := range paths {
		gone := path.Clean(absolute(s.workdir, unquote(word)))
		s.removed = append(s.removed, gone)
		s.copies = slices.DeleteFunc(s.copies, func(c copied) bool { return c.from != "." && covers(gone, c.to, true) })
	}
}

// lacks reports whether a file that was copied with its folder was removed.
func (i image) lacks(file string) bool {
	return slices.ContainsFunc(i.removed, func(gone string) bool { return covers(gone, file, true) })
}

// runDocuments follows here-documents: commands, or what a command such as cat writes into a file.
func (s *stage) runDocuments(text string, documents []document, values map[string]string) {
	switch found := writes.FindStringSubmatch(text); {
	case found == nil && strings.HasPrefix(text, "<<"):
		for _, d := range documents {
			s.run(d.text, values)
		}
	case found != nil && len(documents) == 1 && isFlagFile(found[1]):
		s.copies = append(s.copies, copied{to: absolute(s.workdir, unquote(found[1])), text: strings.TrimSpace(documents[0].text)})
	}
}

// covers reports whether a path of a command, which may have wildcards, means a file, or with deep a folder above it.
func covers(at, file string, deep bool) bool {
	for {
		if same, err := path.Match(at, file); err == nil && same {
			return true
		}
		if !deep || file == "/" {
			return false
		}
		file = path.Dir(file)
	}
}

func (o *owned) chown(to string) {
	user, group, both := strings.Cut(unquote(to), ":")
	o.user = user
	if both {
		o.group = group
	}
}

// withEntropy replaces what a shell computes, $(...) and `...`: in the name of a flag it is random.
func withEntropy(text string) string {
	text = random.ReplaceAllString(text, entropy)
	for {
		at := strings.Index(text, "$(")
		if at < 0 {
			return text
		}
		depth, end := 0, len(text)
		for n := at + 1; n < len(text); n++ {
			switch text[n] {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth == 0 {
				end = n + 1
				break
			}
		}
		text = text[:at] + entropy + text[end:]
	}
}

var symbolic = regexp.MustCompile(`^([ugoa]*)([-+=])([rwxXst]*)$`)

// changedMode is a mode after chmod. What cannot be read changes nothing.
func changedMode(mode int32, to string) int32 {
	if bits, err := strconv.ParseInt(to, 8, 32); err == nil {
		return int32(bits) & 0o777
	}
	if mode == 0 {
		mode = 0o644
	}
	for clause := range strings.SplitSeq(to, ",") {
		found := symbolic.FindStringSubmatch(clause)
		if found == nil {
			return mode
		}
		var bits, who int32
		for letter, value := range map[string]int32{"r": 0o444, "w": 0o222, "x": 0o111} {
			if strings.Contains(found[3], letter) {
				bits |= value
			}
		}
		for letter, value := range map[string]int32{"u": 0o700, "g": 0o070, "o": 0o007, "a": 0o777} {
			if strings.Contains(found[1], letter) {
				who |= value
			}
		}
		if found[1] == "" {
			who = 0o777
		}
		switch found[2] {
		case "+":
			mode |= bits & who
		case "-":
			mode &^= bits & who
		default:
			mode = mode&^who | bits&who
		}
	}
	return mode
}
