package importer

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

var (
	flagName  = regexp.MustCompile(`(?i)(^|[_-])flag([_-]?(value|text|string|content|\d))?$`)
	flagFile  = regexp.MustCompile(`(?i)^(?:the[_-]?)?flag(?:[_-]?\d+|[_-][0-9a-f]{6,}|[_.-][\w.-]*\.txt)?(?:\.txt)?$`)
	flagShape = regexp.MustCompile(`^([^\s{}"'$]{1,32})\{.*\}$`)
	// wholeFlag is a text that is a flag, in a variable of any name.
	wholeFlag = regexp.MustCompile(`(?i)^[a-z0-9_]*(?:ctf|flag)[a-z0-9_]*\{[^{}]+\}$`)
	// readsFlag matches the ways in which programs read a variable, and shellReads those of scripts for a shell.
	readsFlag = regexp.MustCompile(`(?:\benv\.|\benv\[["']|\benv(?:\.get|::var)\(["']|environ\[["']|environ\.get\(["']|getenv\(["']|(?:Getenv|LookupEnv)\("|ENV\[["']|ENV\.fetch\(["'])(\w*(?:FLAG|flag)\w*)|` +
		`\{[^{}]*?\b(\w*FLAG\w*)\b[^{}]*\}\s*=\s*process\.env\b`)
	shellReads = regexp.MustCompile(`\$\{?(\w*(?:FLAG|flag)\w*)`)
)

// isFlagFile reports whether a file has the flag, by its name. Sources and programs have other endings.
func isFlagFile(name string) bool { return flagFile.MatchString(path.Base(filepath.ToSlash(name))) }

// pathShape matches a value that names a file: with folders, or with an ending.
var pathShape = regexp.MustCompile(`^(?:file://|https?://|[A-Za-z]:\\|~|\$|\.{0,2}/)|^[\w.-]+(?:/[\w.-]+)+$|^[\w-]+\.(?:txt|dat|bin|enc|key|env|md|png|jpg|py|php|json)$`)

// isPath reports whether the value of a variable names a file.
func isPath(value string) bool { return !strings.Contains(value, "{") && pathShape.MatchString(value) }

// aboutFlags matches variables that say something of flags, and false flags.
var aboutFlags = regexp.MustCompile(`(?i)(?:format|regexp?|pattern|prefix|suffix|wrapper|length|len|hash|sha\d*|md5)$|(?:^|_)(?:fake|decoy|dummy)_?flag`)

// isFlagPattern reports whether a value describes flags, as in flag{.*}.
func isFlagPattern(value string) bool {
	return strings.HasSuffix(value, "}") && (strings.Contains(value, "...") || strings.Contains(value, ".*") || strings.Contains(value, ".+") || strings.Contains(value, `\w`) || strings.Contains(value, "{["))
}

// flagVariable picks the variable with the flag: FLAG, then a variable with such a name, then a variable whose value is
// a flag.
func flagVariable(environment map[string]string) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(environment)), func(name string) bool {
		return isPath(environment[name]) || isFlagPattern(environment[name]) || aboutFlags.MatchString(name)
	})
	for _, isFlag := range []func(string) bool{
		func(name string) bool { return name == "FLAG" },
		flagName.MatchString,
		func(name string) bool {
			return strings.Contains(strings.ToLower(name), "flag") && flagShape.MatchString(environment[name])
		},
		func(name string) bool { return wholeFlag.MatchString(environment[name]) },
	} {
		if index := slices.IndexFunc(names, isFlag); index >= 0 {
			return names[index]
		}
	}
	return ""
}

// writesFlag matches a command that writes a variable into a file, and its parts: the variable and the file.
var writesFlag = regexp.MustCompile(`\$\{?(\w*[A-Za-z]\w*)[^>|]*(?:>>?|\|\s*tee(?:\s+-\w+)*)\s*["']?([^\s"';&|]+)`)

// variableWritten returns the variable that a start script writes into the file with the flag, "" if there is none.
func (i image) variableWritten() (name string, source string) {
	for _, f := range append([]startFile{{text: strings.Join(i.program(), " ")}}, i.named(i.program())...) {
		if !strings.HasPrefix(f.text, "#!") && f.name != "" {
			continue
		}
		for _, found := range writesFlag.FindAllStringSubmatch(f.text, -1) {
			file := path.Base(found[2])
			if (isFlagFile(file) || partOfName.MatchString(file)) && !f.assigns(found[1]) {
				return found[1], cmp.Or(f.name, "the command")
			}
		}
	}
	return "", ""
}

// assigns reports whether a script for a shell gives a variable another value, such as a random part of a name.
func (f startFile) assigns(name string) bool {
	assigned := regexp.MustCompile(`(?m)(?:^|[\s;])` + name + `=(.*)$`).FindStringSubmatch(f.text)
	return assigned != nil && !strings.Contains(assigned[1], "$"+name) && !strings.Contains(assigned[1], "{"+name)
}

// readVariable returns the variable from which a program reads the flag, "" if there is none.
func (f startFile) readVariable() string {
	reads, shell := readsFlag, isShell(f)
	if shell {
		reads = shellReads
	}
	for _, found := range reads.FindAllStringSubmatch(f.text, -1) {
		name := strings.Join(found[1:], "")
		if flagName.MatchString(name) && !aboutFlags.MatchString(name) && (!shell || !f.assigns(name)) {
			return name
		}
	}
	return ""
}

// sharedText matches a flag anywhere in a text, and withDefault a line in which it is the default of a variable.
var (
	sharedText  = regexp.MustCompile(`(?i)\b[a-z0-9_]*(?:ctf|flag)[a-z0-9_]*\{[\w!@#?&*+=,:;'~^.-]{3,}\}`)
	withDefault = regexp.MustCompile(`(?i)env\b|environ|getenv|:-|\.\.\.|compile\(|match\(`)
)

// sharedFlags names flags that all players would have, in variables and command lines of the container.
func (d *draft) sharedFlags(s *service) {
	flag := d.challenge.Spec.Flag
	shared := func(text string) bool {
		return sharedText.MatchString(text) || len(flag) >= 8 && strings.Contains(text, flag)
	}
	note := func(key, text string) {
		d.lost(s, key, text, "has a flag that all players share: replace it by the flag of the instance, with dynamicFlag")
	}
	for _, name := range slices.Sorted(maps.Keys(s.container.Environment)) {
		value, err := s.container.Environment[name].Text()
		named := slices.ContainsFunc(d.result.Lost, func(n Note) bool { return n.Service == s.name && n.Key == "environment" && n.Text == name })
		if err == nil && shared(value) && !named {
			note("environment", name)
		}
	}
	if shared(strings.Join(s.container.Command, " ")) {
		note("entrypoint", sourceText(yamlnode.Child(s.node, "entrypoint")))
	}
	if shared(strings.Join(s.container.Args, " ")) {
		note("command", sourceText(yamlnode.Child(s.node, "command")))
	}
	if program := strings.Join(s.image.program(), " "); len(s.container.Command)+len(s.container.Args) == 0 && shared(program) {
		n := d.note(s, "flag", cmp.Or(sharedText.FindString(program), flag), "is a flag that all players share, in ENTRYPOINT or CMD: let the program read that of the instance")
		n.File = cmp.Or(s.image.file, n.File)
		d.result.Lost = append(d.result.Lost, n)
	}
	texts := s.image.named(s.image.program())
	if (s.container.DynamicFlag == nil || len(texts) == 0) && s.image.context != "" { // it is somewhere else
		texts = s.image.contextFiles(s.image.files.below(s.image.context, isSource))
	}
	for _, f := range texts {
		number := 0
		for line := range strings.Lines(f.text) {
			number++
			if found := sharedText.FindString(line); found != "" && !withDefault.MatchString(line) && !isFlagPattern(found) {
				n := d.note(s, "flag", found, "is a flag that all players share: let the program read that of the instance")
				n.File, n.Line = f.name, number
				d.result.Lost = append(d.result.Lost, n)
				break
			}
		}
	}
}

// addFlag says how the flag reaches a container: by a variable, or by a file that was mounted or copied. Where the
// files leave its path open, the author is asked.
func (d *draft) addFlag(s *service) {
	c := &s.container
	d.flagVariables(s)
	for _, m := range s.mounts {
		d.flag(cmp.Or(m.text, d.readFlag(m.from)))
		d.flagAt(s, m.to, "mounted", 0)
	}
	if name := flagVariable(s.image.env); name != "" && c.DynamicFlag == nil {
		d.flag(s.image.env[name])
		c.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: name}}
	}
	open, found := s.image.openPath()
	if found {
		d.flagThatIsRead(s)
	}
	for _, file := range s.image.flags() {
		d.flag(cmp.Or(strings.TrimSpace(file.text), d.readFlag(filepath.Join(s.image.context, filepath.FromSlash(file.from)))))
		if found && c.DynamicFlag == nil {
			continue
		}
		if d.flagAt(s, file.to, "copied", file.number) && len(s.image.restricted) > 0 {
			n := d.note(s, "flag", s.image.restricted[0].text, "all users of the container can read the flag of an instance: write its readers as dynamicFlag.content.mode and group")
			n.File, n.Line = s.image.file, s.image.restricted[0].number
			d.result.Lost = append(d.result.Lost, n)
		}
	}
	d.flagThatIsRead(s)
	d.nameUnset(s)
	if found && c.DynamicFlag == nil {
		s.question = ptr.To(d.note(s, "flag", open.text, "the path of the flag is not certain after this line"))
		s.question.File, s.question.Line = s.image.file, open.number
	}
}

// flagVariables gives the flag as the variable of a compose file that has one.
func (d *draft) flagVariables(s *service) {
	values := map[string]string{}
	for name, value := range s.container.Environment {
		values[name], _ = value.Text()
	}
	name := flagVariable(values)
	if name != "" && s.container.DynamicFlag == nil {
		d.flag(values[name])
		delete(s.container.Environment, name)
		delete(values, name)
		s.container.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: name}}
		name = flagVariable(values)
	}
	for ; name != ""; name = flagVariable(values) {
		d.lost(s, "environment", name, "a container gets the flag in one way: this variable keeps its value, for all players")
		delete(values, name)
	}
}

// flagThatIsRead gives the flag as the variable from which the program of the image reads it, if it does.
func (d *draft) flagThatIsRead(s *service) {
	if s.container.DynamicFlag != nil {
		return
	}
	if name, source := s.image.variableWritten(); name != "" {
		s.container.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: name}}
		d.flag(s.image.env[name])
		if value, ok := s.container.Environment[name]; ok {
			text, _ := value.Text()
			d.flag(text)
			delete(s.container.Environment, name)
		}
		d.chosen(s, "dynamicFlag", name, source+" writes this variable into the file with the flag: each instance gets its own")
		return
	}
	files := s.image.programFiles()
	if slices.ContainsFunc(d.services, func(other *service) bool { return other != s && other.image.context == s.image.context }) {
		files = s.image.started() // others may be those of the other container
	}
	for _, f := range files {
		if name := f.readVariable(); name != "" {
			s.container.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: name}}
			d.chosen(s, "dynamicFlag", name, f.name+" reads the flag from this variable: each instance gets its own")
			return
		}
	}
}

// nameUnset names a variable from which a program reads a flag, where the container has the flag in a file.
func (d *draft) nameUnset(s *service) {
	for _, f := range s.image.named(s.image.program()) {
		name := f.readVariable()
		_, inFile := s.container.Environment[name]
		_, inImage := s.image.env[name]
		if flag := s.container.DynamicFlag; name != "" && !inFile && !inImage && flag != nil && flag.Content != nil {
			d.result.Lost = append(d.result.Lost, d.scriptNote(s, f, name, "reads the flag from this variable, which is not set, since a container gets the flag in one way: write dynamicFlag: {env: {name: "+name+"}} in place of the file"))
		}
	}
}

// scriptNote is about a text in a file of the image.
func (d *draft) scriptNote(s *service, f startFile, text, message string) Note {
	n := d.note(s, "flag", text, message)
	if before, _, found := strings.Cut(f.text, text); found && f.name != "" {
		n.File, n.Line = f.name, 1+strings.Count(before, "\n")
	}
	return n
}

// flagsBelow are the files with flags in a folder, the highest first.
func (f *files) flagsBelow(folder string) []string {
	return f.below(folder, func(name string) bool {
		return isFlagFile(name) && slices.Contains([]string{"", ".txt"}, path.Ext(name))
	})
}

// maxFlag is the size of the largest file that is read as a flag, in bytes.
const maxFlag = 4096

// readFlag returns the flag in a file of the author, "" if there is none.
func (d *draft) readFlag(file string) string {
	text := d.result.files.small(file)
	if len(text) >= maxFlag {
		return ""
	}
	return strings.TrimSpace(text)
}

// flagAt replaces a file of the image by the flag of the instance, and reports whether it did.
func (d *draft) flagAt(s *service, target, origin string, line int) bool {
	lost := func(message string) {
		n := d.note(s, "flag", target, message)
		if line > 0 {
			n.File, n.Line = s.image.file, line
		}
		d.result.Lost = append(d.result.Lost, n)
	}
	target = path.Clean(target)
	if s.container.DynamicFlag != nil {
		if f := s.container.DynamicFlag.Content; f == nil || f.Path != target {
			lost("a container gets the flag in one way: this file keeps what the image has, for all players")
		}
		return false
	}
	if problem := d.setFlagFile(s, target); problem != "" {
		lost("no flag can be put there: " + problem)
		return false
	}
	d.chosen(s, "dynamicFlag", target, "the file with the flag was "+origin+" there: each instance gets its own, read-only and readable by all users")
	return true
}

// setFlagFile gives a container the flag as a file. It returns the words of the operator if it refuses the path.
func (d *draft) setFlagFile(s *service, file string) string {
	trial := s.container
	trial.Hostname, trial.Image, trial.DynamicFlag = "a", "a", &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: file}}
	for _, err := range rules.Validate([]bergv1.Container{trial}, d.options.Allowed) {
		if strings.Contains(err.Field, "dynamicFlag") {
			return err.Detail
		}
	}
	s.container.DynamicFlag = trial.DynamicFlag
	return ""
}

// addFlags gives each container its flag, and asks the author for the path of a flag that the files leave open.
func (d *draft) addFlags() error {
	name, file, named := strings.Cut(d.options.FlagFile, "=")
	if !named {
		name, file = "", d.options.FlagFile
	}
	target := slices.IndexFunc(d.services, func(s *service) bool { return s.name == name || s.container.Hostname == name })
	if !named && len(d.services) == 1 {
		target = 0
	}
	if target >= 0 && file != "" {
		if problem := d.setFlagFile(d.services[target], file); problem != "" {
			return fmt.Errorf("--flag-file: %s", problem)
		}
	}
	var asked []*service
	for _, s := range d.services {
		if d.addFlag(s); s.question != nil {
			asked = append(asked, s)
		}
	}
	if target < 0 && file != "" {
		if named || len(asked) != 1 {
			return fmt.Errorf("--flag-file: must name a container, as in --flag-file %s=/flag.txt", d.services[0].name)
		}
		if problem := d.setFlagFile(asked[0], file); problem != "" {
			return fmt.Errorf("--flag-file: %s", problem)
		}
		asked = nil
	}
	d.gzctf()
	for _, s := range asked {
		d.result.Questions = append(d.result.Questions, *s.question)
	}
	if !slices.ContainsFunc(d.services, func(s *service) bool { return s.container.DynamicFlag != nil || s.question != nil }) {
		message := "no variable and no file with the flag was found: all players share what the image has. Add to the container that has it dynamicFlag: {env: {name: FLAG}}, or " +
			"dynamicFlag: {content: {path: /flag.txt}} as --flag-file /flag.txt does"
		d.result.Questions = append(d.result.Questions, d.note(nil, "flag", "", message))
	}
	return nil
}

// flag keeps the flag of the author, and its shape.
func (d *draft) flag(value string) {
	if d.challenge.Spec.Flag == "" && value != "" {
		d.challenge.Spec.Flag = value
		if shape := flagShape.FindStringSubmatch(value); shape != nil {
			d.challenge.Spec.FlagFormat = shape[1] + "{...}"
		}
	}
}

// gzctf carries over what a file of GZCTF says of the only container, where no other file says it.
func (d *draft) gzctf() {
	if d.container == nil || len(d.services) != 1 {
		return
	}
	s := d.services[0]
	if shape := flagShape.FindStringSubmatch(fieldText(d.container, "flagTemplate")); shape != nil && d.challenge.Spec.Flag == "" {
		d.challenge.Spec.FlagFormat = shape[1] + "{...}"
	}
	if len(s.published) == 0 {
		s.published, s.exposed = exposedPorts(fieldText(d.container, "exposePort")), nil
	}
	if s.container.ResourceLimits == nil {
		number := func(key, format string, factor int) *bergv1.Amount {
			n, err := strconv.Atoi(fieldText(d.container, key))
			if err != nil || n <= 0 {
				return nil
			}
			return ptr.To(bergv1.Amount(fmt.Sprintf(format, n*factor)))
		}
		// GZCTF counts tenths of a CPU and MiB.
		limits := bergv1.Resources{CPU: number("cpuCount", "%dm", 100), Memory: number("memoryLimit", "%dMi", 1)}
		if limits != (bergv1.Resources{}) {
			s.container.ResourceLimits = &limits
		}
	}
	if s.container.DynamicFlag == nil && s.question == nil && fieldText(d.container, "flagTemplate") != "" {
		s.container.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "GZCTF_FLAG"}}
		d.chosen(s, "dynamicFlag", "GZCTF_FLAG", "GZCTF gives the flag in this variable")
	}
}
