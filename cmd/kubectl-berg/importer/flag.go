package importer

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

var (
	flagName   = regexp.MustCompile(`(?i)(^|[_-])flag([_-]?(value|text|string|content|1))?$`)
	flagFile   = regexp.MustCompile(`(?i)^(the[_-]?)?flag([_.-].*)?(\.txt)?$|^flag\d*\.txt$`)
	flagShape  = regexp.MustCompile(`^([A-Za-z0-9_-]+)\{.*\}$`)
	programEnd = []string{".py", ".js", ".ts", ".c", ".cpp", ".go", ".rs", ".sh", ".php", ".html", ".png", ".jpg", ".gif", ".svg", ".sql", ".rb", ".java", ".example", ".md", ".enc"}
)

// isFlagFile reports whether a file has the flag, by its name.
func isFlagFile(name string) bool {
	base := path.Base(filepath.ToSlash(name))
	return flagFile.MatchString(base) && !slices.Contains(programEnd, strings.ToLower(path.Ext(base)))
}

// flagVariable picks the variable with the flag, FLAG first.
func flagVariable(environment map[string]bergv1.EnvironmentValue) string {
	if _, ok := environment["FLAG"]; ok {
		return "FLAG"
	}
	best := ""
	for name := range environment {
		if flagName.MatchString(name) && (best == "" || name < best) {
			best = name
		}
	}
	return best
}

// addFlag says how the flag reaches a container: by a variable, or by a file that was mounted or copied.
func (d *draft) addFlag(s *service) {
	c := &s.container
	if name := flagVariable(c.Environment); name != "" && c.DynamicFlag == nil {
		value, _ := c.Environment[name].Text()
		d.flag(value)
		delete(c.Environment, name)
		c.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: name}}
	}
	for _, m := range s.mounts {
		if isFlagFile(m.from) || isFlagFile(m.to) {
			d.flagAt(s, copied{to: m.to}, m.from, "mounted")
		}
	}
	if s.image.file != "" && c.DynamicFlag == nil {
		for _, name := range slices.Sorted(maps.Keys(s.image.env)) {
			if flagName.MatchString(name) && c.DynamicFlag == nil {
				d.flag(s.image.env[name])
				c.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: name}}
			}
		}
		for _, file := range s.image.copies {
			switch {
			case file.from == "":
				d.flag(file.text)
				d.flagAt(s, file, "", "written")
			case isFlagFile(file.from):
				d.flagAt(s, file, filepath.Join(s.image.context, filepath.FromSlash(file.from)), "copied")
			case file.from == ".":
				into := file.to
				for _, name := range []string{"flag.txt", "flag"} {
					from := filepath.Join(s.image.context, name)
					if info, err := os.Stat(from); err == nil && info.Mode().IsRegular() && c.DynamicFlag == nil && !s.image.lacks(path.Join(into, name)) {
						file.to = path.Join(into, name)
						d.flagAt(s, file, from, "copied")
					}
				}
			}
		}
	}
}

// flagAt puts the flag of the instance in place of a file of the image. source is where the author has it.
func (d *draft) flagAt(s *service, file copied, source, how string) {
	at := path.Clean(file.to)
	if content, err := os.ReadFile(source); err == nil && len(content) < 4096 {
		d.flag(strings.TrimSpace(string(content)))
	}
	if s.container.DynamicFlag != nil {
		if f := s.container.DynamicFlag.Content; f == nil || f.Path != at {
			d.lost(s, "flag", at, "a container gets the flag in one way: this file keeps what the image has")
		}
		return
	}
	content := bergv1.FlagFile{Path: at}
	readers := d.readers(s, &content, file.owned)
	trial := s.container
	trial.Hostname, trial.Image, trial.DynamicFlag = "a", "a", &bergv1.DynamicFlag{Content: &content}
	for _, err := range rules.Validate([]bergv1.Container{trial}, d.options.Allowed) {
		if strings.Contains(err.Field, "dynamicFlag") {
			d.lost(s, "flag", at, "no flag can be put there: "+err.Detail)
			return
		}
	}
	s.container.DynamicFlag = trial.DynamicFlag
	if script := s.image.changesAtStart(at); script != "" {
		d.lost(s, "flag", at, script+" changes the file when the container starts, and the flag of an instance is read-only: let it copy the flag instead (docs/berg/challenge.md#flags)")
	}
	d.chosen(s, "dynamicFlag", at, "the file with the flag was "+how+" there: each instance gets its own, read-only and readable by "+readers)
}

// changesAtStart returns the script with which the image starts, if it moves or removes a file or changes its mode; "" otherwise.
func (i image) changesAtStart(file string) string {
	changes := regexp.MustCompile(`(?m)^[^#\n]*\b(?:mv|rm|chmod|chown|chgrp|shred|unlink)\s[^\n]*` + regexp.QuoteMeta(strings.ReplaceAll(file, entropy, "")))
	for _, f := range i.startFiles() {
		if strings.HasPrefix(f.text, "#!") && changes.MatchString(f.text) {
			return f.name
		}
	}
	return ""
}

// othersRead and groupReads are bits of a mode.
const (
	othersRead int32 = 0o004
	groupReads int32 = 0o040
)

// readers gives the file of a flag the readers that the image gives it, and names them. The owner of a flag is always
// root: what another user alone reads all can read, and the author is told how to change that.
func (d *draft) readers(s *service, file *bergv1.FlagFile, by owned) string {
	isRoot := func(name string) bool { return slices.Contains([]string{"", "root", "0"}, name) }
	if by.mode == 0 || by.mode&othersRead != 0 {
		return "all users"
	}
	hasGroup := by.mode&groupReads != 0 && !isRoot(by.group)
	switch number, err := strconv.ParseInt(by.group, 10, 64); {
	case hasGroup && err == nil:
		file.Group = &number
		return "root and group " + by.group
	case hasGroup:
		d.lost(s, "flag", file.Path, "group "+by.group+": write its number in /etc/group of the image as dynamicFlag.content.group, so that its members alone can read the flag")
		return "all users"
	case !isRoot(by.user):
		d.lost(s, "flag", file.Path, "user "+by.user+" alone can read it in the image, but the flag of an instance belongs to root: let a group read it, by USER or by a setgid program, and write the group's number as dynamicFlag.content.group")
		return "all users"
	}
	file.Mode = ptr.To(by.mode)
	return "root"
}

// flag keeps the flag of the author, and its shape.
func (d *draft) flag(value string) {
	if d.challenge.Spec.Flag == "" && value != "" && !strings.Contains(value, entropy) {
		d.challenge.Spec.Flag = value
		if shape := flagShape.FindStringSubmatch(value); shape != nil {
			d.challenge.Spec.FlagFormat = shape[1] + "{...}"
		}
	}
}
