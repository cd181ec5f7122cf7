package importer

import (
	"cmp"
	"maps"
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
	writes = regexp.MustCompile(`^(?:cat\s[^|;&]*>|tee\s)\s*([^\s<>]+)`)
	random = regexp.MustCompile("`[^`]*`|\\$\\{?RANDOM\\}?")
	// wholeFlag is a text that is a flag, in a file of any name.
	wholeFlag = regexp.MustCompile(`(?i)^[a-z0-9_]*(?:ctf|flag)[a-z0-9_]*\{[^{}]+\}$`)
)

// entropy is what stands in the path of a flag for what players cannot guess.
const entropy = "{entropy}"

// run follows files that were copied, and finds flags that are written, through the commands of a RUN instruction.
func (s *stage) run(text string, values map[string]string) {
	values = maps.Clone(values)
	if values["HOME"] == "" {
		values["HOME"] = "/root"
	}
	written := ""
	for _, c := range shellCommands(withEntropy(text)) {
		values = assigned(values, expand(c.text, values, true))
		words := shellWords(expand(c.text, values, true), true)
		for len(words) > 0 && strings.HasPrefix(words[0], "--") { // options of RUN
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		var into []string
		if at := slices.Index(words, ">"); at > 0 {
			words, into = words[:at], words[at+1:]
		}
		into = slices.DeleteFunc(into, func(w string) bool { return w == ">" })
		switch words[0] {
		case "echo", "printf":
			if written = printed(words); len(into) > 0 {
				s.write(into[0], written, owned{})
			}
		case "tee":
			for _, file := range words[1:] {
				if c.piped && !strings.HasPrefix(file, "-") {
					s.write(file, written, owned{})
				}
			}
		case "cat":
			if len(into) > 0 {
				s.fileCommand([]string{"cp", words[len(words)-1], into[0]})
			}
		case "groupadd", "addgroup":
			s.group(words, "-g", "--gid")
		case "useradd", "adduser":
			if !slices.ContainsFunc(words, func(w string) bool { return slices.Contains([]string{"-g", "-G", "--gid", "--ingroup"}, w) }) {
				s.group(words, "-u", "--uid") // its group gets the same number
			}
		default:
			s.fileCommand(words)
		}
	}
}

// group keeps the number of a group that a command makes.
func (s *stage) group(words []string, options ...string) {
	name, number := "", ""
	for i := 1; i < len(words); i++ {
		option, value, joined := strings.Cut(words[i], "=")
		switch {
		case !strings.HasPrefix(words[i], "-"):
			name = cmp.Or(name, words[i])
		case joined && slices.Contains(options, option):
			number = value
		case slices.Contains(options, option) && i+1 < len(words):
			i++
			number = words[i]
		case slices.Contains(accountValues, option) && !joined:
			i++
		}
	}
	if _, err := strconv.ParseUint(number, 10, 16); err == nil && name != "" && s.groups[name] == "" {
		s.groups[name] = number
	}
}

// accountValues are options of commands that make users and groups, with a value in the next word.
var accountValues = []string{"-u", "--uid", "-s", "--shell", "-d", "--home", "-h", "-c", "--comment", "-p", "--password", "-k", "--gecos", "-b", "-e", "-f", "-K", "--home-dir"}

// write adds a file that the Dockerfile writes.
func (s *stage) write(file, text string, by owned) {
	file = path.Clean(absolute(s.workdir, file))
	if strings.HasPrefix(file, "/dev/") {
		return
	}
	flag := strings.TrimSpace(text)
	if variable.MatchString(flag) {
		flag = "" // its value is known when the image is built
	}
	if isFlagFile(file) || wholeFlag.MatchString(flag) {
		s.copies = append(s.copies, copied{to: file, text: flag, owned: by})
	} else {
		s.texts[file] = text
	}
}

// fileCommand follows what a command does to files with flags.
func (s *stage) fileCommand(words []string) {
	deep, mode := false, ""
	var rest []string
	for i := 1; i < len(words); i++ {
		switch word := words[i]; {
		case words[0] == "install" && i+1 < len(words) && slices.Contains([]string{"-m", "-o", "-g"}, word):
			i++
			if word == "-m" {
				mode = words[i]
			}
		case strings.HasPrefix(word, "-"):
			deep = deep || word == "--recursive" || !strings.HasPrefix(word, "--") && strings.Contains(word, "R")
		default:
			rest = append(rest, word)
		}
	}
	switch words[0] {
	case "rm":
		s.remove(rest)
	case "mkdir":
		for _, folder := range rest {
			s.folders = append(s.folders, path.Clean(absolute(s.workdir, folder)))
		}
	}
	if len(rest) < 2 {
		return
	}
	last := path.Clean(absolute(s.workdir, rest[len(rest)-1]))
	folder := strings.HasSuffix(rest[len(rest)-1], "/") || s.isFolder(last)
	for n := range s.copies {
		c := &s.copies[n]
		if c.folder || !slices.ContainsFunc(rest, func(w string) bool { return covers(path.Clean(absolute(s.workdir, w)), c.to, deep) }) {
			continue
		}
		target := last
		if folder {
			target = path.Join(last, path.Base(c.to))
		}
		switch words[0] {
		case "mv":
			c.to = target
		case "cp", "install":
			if target != c.to && c.isFlag() {
				duplicate := *c
				duplicate.to = target
				if mode != "" {
					duplicate.mode = changedMode(0, mode)
				}
				s.copies = append(s.copies, duplicate)
			}
		case "chmod":
			c.mode = changedMode(c.mode, rest[0])
		case "chown":
			c.chown(rest[0])
		case "chgrp":
			c.group = rest[0]
		}
	}
}

// remove forgets files that rm takes out of the image.
func (s *stage) remove(paths []string) {
	for _, word := range paths {
		gone := path.Clean(absolute(s.workdir, word))
		s.copies = slices.DeleteFunc(s.copies, func(c copied) bool { return !c.folder && covers(gone, c.to, true) })
	}
}

// runDocuments follows here-documents: commands, or what a command such as cat writes into a file.
func (s *stage) runDocuments(text string, documents []document, values map[string]string) {
	switch found := writes.FindStringSubmatch(text); {
	case found == nil && strings.HasPrefix(text, "<<"):
		for _, d := range documents {
			s.run(d.text, values)
		}
	case found != nil && len(documents) == 1:
		s.write(found[1], documents[0].text, owned{})
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
