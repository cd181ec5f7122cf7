package importer

import (
	"cmp"
	"io/fs"
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
	flagName  = regexp.MustCompile(`(?i)(^|[_-])flag([_-]?(value|text|string|content|\d))?$`)
	flagFile  = regexp.MustCompile(`(?i)^(the[_-]?)?flag([_.-].*)?(\.txt)?$|^flag\d*\.txt$`)
	flagShape = regexp.MustCompile(`^([A-Za-z0-9_-]+)\{.*\}$`)
	// readsFlag is how scripts and programs read a variable.
	readsFlag  = regexp.MustCompile(`(?:\$\{?|process\.env\.|process\.env\[["']|environ\[["']|environ\.get\(["']|getenv\(["']|Getenv\("|ENV\[["'])(\w*(?:FLAG|flag)\w*)`)
	programEnd = []string{".py", ".js", ".ts", ".c", ".cpp", ".go", ".rs", ".sh", ".php", ".html", ".png", ".jpg", ".gif", ".svg", ".sql", ".rb", ".java", ".example", ".md", ".enc"}
)

// isFlagFile reports whether a file has the flag, by its name.
func isFlagFile(name string) bool {
	base := path.Base(filepath.ToSlash(name))
	return flagFile.MatchString(base) && !slices.Contains(programEnd, strings.ToLower(path.Ext(base)))
}

// flagVariable picks the variable with the flag: FLAG, then one that is called so, then one whose value is one.
func flagVariable(environment map[string]string) string {
	names := slices.Sorted(maps.Keys(environment))
	for _, isFlag := range []func(string) bool{
		func(name string) bool { return name == "FLAG" },
		flagName.MatchString,
		func(name string) bool { return wholeFlag.MatchString(environment[name]) },
	} {
		if index := slices.IndexFunc(names, isFlag); index >= 0 {
			return names[index]
		}
	}
	return ""
}

// addFlag says how the flag reaches a container: by a variable, or by a file that was mounted or copied.
func (d *draft) addFlag(s *service) {
	c := &s.container
	values := map[string]string{}
	for name, value := range c.Environment {
		values[name], _ = value.Text()
	}
	if name := flagVariable(values); name != "" && c.DynamicFlag == nil {
		d.flag(values[name])
		delete(c.Environment, name)
		delete(values, name)
		c.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: name}}
		if other := flagVariable(values); other != "" {
			d.lost(s, "environment", other, "a container gets the flag in one way: this variable keeps its value in all instances")
		}
	}
	for _, m := range s.mounts {
		d.flag(m.text)
		d.flagAt(s, copied{to: m.to}, m.from, "mounted")
	}
	if s.image.file != "" && c.DynamicFlag == nil {
		if name := flagVariable(s.image.env); name != "" {
			d.flag(s.image.env[name])
			c.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: name}}
		}
		for _, file := range s.image.copies {
			switch {
			case !file.isFlag():
			case file.from == "":
				d.flag(file.text)
				d.flagAt(s, file, "", "written")
			default:
				d.flagAt(s, file, filepath.Join(s.image.context, filepath.FromSlash(file.from)), "copied")
			}
		}
	}
	if c.DynamicFlag == nil {
		d.flagThatIsRead(s)
	}
}

// flagThatIsRead gives the flag as the variable from which the program of the image reads it, if it does.
func (d *draft) flagThatIsRead(s *service) {
	for _, f := range s.image.startFiles() {
		for _, found := range readsFlag.FindAllStringSubmatch(f.text, -1) {
			if flagName.MatchString(found[1]) {
				s.container.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: found[1]}}
				d.chosen(s, "dynamicFlag", found[1], f.name+" reads the flag from this variable: each instance gets its own")
				return
			}
		}
	}
}

// maxDepth is how far below a folder that is copied flags are looked for.
const maxDepth = 3

// flagsBelow are the files with flags in a folder, the highest first, without those for players and solvers.
func flagsBelow(folder string) (out []string) {
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(folder, file)
		switch {
		case err != nil || relErr != nil || rel == ".":
			return nil //nolint:nilerr // what cannot be read has no flag
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" ||
			slices.Contains(asideFolders, strings.ToLower(entry.Name())) || strings.Count(rel, string(filepath.Separator)) >= maxDepth-1):
			return fs.SkipDir
		case entry.Type().IsRegular() && isFlagFile(rel) && slices.Contains([]string{"", ".txt"}, path.Ext(filepath.ToSlash(rel))):
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		return nil
	}
	slices.SortStableFunc(out, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	return out
}

// flagAt puts the flag of the instance in place of a file of the image. source is where the author has it.
func (d *draft) flagAt(s *service, file copied, source, how string) {
	target := path.Clean(file.to)
	if content, err := os.ReadFile(source); err == nil && len(content) < 4096 {
		d.flag(strings.TrimSpace(string(content)))
	}
	if s.container.DynamicFlag != nil {
		if f := s.container.DynamicFlag.Content; f == nil || f.Path != target {
			d.lost(s, "flag", target, "a container gets the flag in one way: this file keeps what the image has")
		}
		return
	}
	content := bergv1.FlagFile{Path: target}
	readers := d.readers(s, &content, file.owned)
	trial := s.container
	trial.Hostname, trial.Image, trial.DynamicFlag = "a", "a", &bergv1.DynamicFlag{Content: &content}
	for _, err := range rules.Validate([]bergv1.Container{trial}, d.options.Allowed) {
		if strings.Contains(err.Field, "dynamicFlag") {
			d.lost(s, "flag", target, "no flag can be put there: "+err.Detail)
			return
		}
	}
	s.container.DynamicFlag = trial.DynamicFlag
	if script := s.image.changesAtStart(target); script != "" {
		d.lost(s, "flag", target, script+" changes the file when the container starts, and the flag of an instance is read-only: let it copy the flag instead (docs/berg/challenge.md#flags)")
	}
	d.chosen(s, "dynamicFlag", target, "the file with the flag was "+how+" there: each instance gets its own, read-only and readable by "+readers)
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
func (d *draft) readers(s *service, file *bergv1.FlagFile, owner owned) string {
	isRoot := func(name string) bool { return slices.Contains([]string{"", "root", "0"}, name) }
	if owner.mode == 0 || owner.mode&othersRead != 0 {
		return "all users"
	}
	owner.group = cmp.Or(s.image.groups[owner.group], owner.group)
	hasGroup := owner.mode&groupReads != 0 && !isRoot(owner.group)
	switch number, err := strconv.ParseInt(owner.group, 10, 64); {
	case hasGroup && err == nil:
		file.Group = &number
		return "root and group " + owner.group
	case hasGroup:
		d.lost(s, "flag", file.Path, "group "+owner.group+": write its number in /etc/group of the image as dynamicFlag.content.group, so that its members alone can read the flag")
		return "all users"
	case !isRoot(owner.user):
		d.lost(s, "flag", file.Path, "user "+owner.user+" alone can read it in the image, but the flag of an instance belongs to root: let a group read it, by USER or by a setgid program, and write the group's number as dynamicFlag.content.group")
		return "all users"
	}
	file.Mode = ptr.To(owner.mode)
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
