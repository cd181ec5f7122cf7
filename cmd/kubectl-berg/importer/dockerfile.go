package importer

import (
	"bytes"
	"errors"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// image is the content of a Dockerfile, as far as its instructions say it. Commands of RUN are not interpreted.
type image struct {
	files *files
	// file is the name of the Dockerfile, "" if there is none to read.
	file    string
	context string
	// bases are the images on which it builds, the stage itself first.
	bases   []string
	exposed []port
	env     map[string]string
	workdir string
	// folders are paths of the image that WORKDIR names.
	folders []string
	copies  []copied
	// texts are files whose content stands in the Dockerfile, by their path.
	texts map[string]string
	check check

	entrypoint, command []string
	// jail: a command or a copied file is that of a jail.
	jail bool
	// lines are the instructions of the last stage, with their programs.
	lines []string
	// runs are the commands of RUN that have not been searched for flags.
	runs []sourceLine
	// unclear are instructions after which the path of a flag is not certain.
	unclear []sourceLine
	// restricted are instructions after which not all users can read the flag.
	restricted []sourceLine
	// refused are lines that docker build refuses, with its words.
	refused []sourceLine
	// syntax is the frontend that the file names, which may know more instructions than this parser.
	syntax string
}

// sourceLine is an instruction of a Dockerfile.
type sourceLine struct {
	number int
	text   string
}

// copied is a file or folder of the context, and its path in the image.
type copied struct {
	from, to string
	folder   bool
	// name is its name within a folder.
	name string
	// text is the content of a file that stands in the Dockerfile. Its from is "".
	text string
	// number is the line of its instruction.
	number int
	// unclear is an instruction whose destination may be a file or a folder.
	unclear sourceLine
}

// isFlag reports whether a file has the flag, by its names.
func (c copied) isFlag() bool { return !c.folder && (isFlagFile(c.from) || isFlagFile(c.to)) }

type stage struct {
	name string
	image
}

// readDockerfile reads a Dockerfile, without building it. Values of arguments are their defaults or given.
func (f *files) readDockerfile(file, context, target string, args map[string]string) (image, error) {
	content, err := f.Read(file)
	if err == nil && len(bytes.TrimSpace(content)) == 0 {
		err = errEmpty
	}
	if err != nil {
		return image{files: f, context: context}, err
	}
	return f.parseDockerfile(string(content), file, context, target, args), nil
}

// dockerfile collects the stages of a Dockerfile.
type dockerfile struct {
	files   *files
	context string
	lex     *shell.Lex
	// given are arguments of the build, arguments their values and defaults.
	given, arguments map[string]string
	stages           []stage
	refused          []sourceLine
}

func (f *files) parseDockerfile(content, file, context, target string, args map[string]string) image {
	parsed, err := parser.Parse(strings.NewReader(content))
	if err != nil {
		return image{files: f, file: file, context: context, refused: []sourceLine{{1, oneLine(err.Error())}}}
	}
	syntax, _, _, _ := parser.DetectSyntax([]byte(content))
	d := dockerfile{files: f, context: context, lex: shell.NewLex(parsed.EscapeToken), given: args, arguments: map[string]string{}}
	for _, node := range parsed.AST.Children {
		instruction, err := instructions.ParseInstruction(node)
		if err == nil {
			err = d.add(instruction, sourceLine{node.StartLine, oneLine(node.Original)})
		}
		if err != nil {
			d.refused = append(d.refused, sourceLine{node.StartLine, oneLine(err.Error())})
		}
	}
	out := image{}
	for n := range d.stages {
		d.stages[n].settle()
		if s := d.stages[n]; n == len(d.stages)-1 && out.bases == nil || target != "" && strings.EqualFold(s.name, target) {
			out = s.image
		}
	}
	out.files, out.file, out.context, out.refused, out.syntax = f, file, context, d.refused, syntax
	return out
}

// errEmpty means that a file has nothing in it.
var errEmpty = errors.New("is empty")

// errNoStage means that an instruction stands before the first FROM.
var errNoStage = errors.New("no build stage in current context")

// add reads an instruction.
func (d *dockerfile) add(instruction any, source sourceLine) error {
	if a, ok := instruction.(*instructions.ArgCommand); ok {
		return d.argument(a)
	}
	if from, ok := instruction.(*instructions.Stage); ok {
		return d.from(from)
	}
	if len(d.stages) == 0 {
		return errNoStage
	}
	s := &d.stages[len(d.stages)-1]
	switch instruction.(type) {
	case *instructions.LabelCommand, *instructions.MaintainerCommand: // words for people
	default:
		s.lines = append(s.lines, source.text)
	}
	if e, ok := instruction.(instructions.SupportsSingleWordExpansion); ok {
		if err := e.Expand(d.expand); err != nil {
			return err
		}
	}
	switch i := instruction.(type) {
	case *instructions.EnvCommand:
		for _, e := range i.Env {
			s.env[e.Key] = e.Value
		}
	case *instructions.WorkdirCommand:
		s.workdir = path.Join("/", absolute(s.workdir, i.Path))
		s.folders = append(s.folders, s.workdir)
	case *instructions.ExposeCommand:
		for _, word := range strings.Fields(source.text)[1:] { // BuildKit sorts them
			expanded, err := d.expand(word)
			if err != nil {
				return err
			}
			s.exposed = append(s.exposed, exposedPorts(expanded)...)
		}
	case *instructions.HealthCheckCommand:
		s.check = check{test: i.Health.Test, interval: i.Health.Interval, timeout: i.Health.Timeout, retries: i.Health.Retries}
	case *instructions.EntrypointCommand:
		s.entrypoint = commandLine(i.ShellDependantCmdLine)
	case *instructions.CmdCommand:
		s.command = commandLine(i.ShellDependantCmdLine)
	case *instructions.RunCommand:
		run := sourceLine{source.number, strings.Join(i.CmdLine, " ")}
		for _, file := range i.Files {
			run.text += "\n" + file.Data
		}
		s.runs = append(s.runs, run)
		s.jail = s.jail || startsJail(run.text)
	case *instructions.AddCommand:
		s.copyFiles(i.SourcesAndDest, nil, source)
	case *instructions.CopyCommand:
		d.copy(s, i, source)
	}
	return nil
}

// commandLine returns the words of a command line, which a shell splits unless it is a list.
func commandLine(c instructions.ShellDependantCmdLine) []string {
	if c.PrependShell {
		return strings.Fields(strings.Join(c.CmdLine, " "))
	}
	return c.CmdLine
}

// expand replaces the variables of a word by arguments, and by variables of the current stage.
func (d *dockerfile) expand(word string) (string, error) {
	values := maps.Clone(d.arguments)
	if len(d.stages) > 0 {
		maps.Copy(values, d.stages[len(d.stages)-1].env)
	}
	out, _, err := d.lex.ProcessWord(word, variables(values))
	return out, err
}

// variables are values by their names, as BuildKit asks for them.
type variables map[string]string

// Get returns the value of a variable.
func (v variables) Get(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

// Keys returns the names of the variables.
func (v variables) Keys() []string { return slices.Collect(maps.Keys(v)) }

func (d *dockerfile) argument(a *instructions.ArgCommand) error {
	if err := a.Expand(d.expand); err != nil {
		return err
	}
	for _, pair := range a.Args {
		if given, ok := d.given[pair.Key]; ok {
			d.arguments[pair.Key] = given
		} else if pair.Value != nil {
			d.arguments[pair.Key] = *pair.Value
		}
	}
	return nil
}

// from begins a stage, with the content of an earlier stage if it extends that.
func (d *dockerfile) from(f *instructions.Stage) error {
	values := variables(d.arguments)
	base, _, err := d.lex.ProcessWord(f.BaseName, values)
	if err != nil {
		return err
	}
	s := stage{name: f.Name, image: image{files: d.files, context: d.context, env: map[string]string{}, texts: map[string]string{}, workdir: "/"}}
	if earlier := d.stage(base); earlier != nil {
		s.image = earlier.image
		s.env, s.texts = maps.Clone(s.env), maps.Clone(s.texts)
		s.exposed, s.copies, s.lines, s.folders = slices.Clone(s.exposed), slices.Clone(s.copies), slices.Clone(s.lines), slices.Clone(s.folders)
		s.unclear, s.restricted = slices.Clone(s.unclear), slices.Clone(s.restricted)
	}
	s.bases = append([]string{base}, s.bases...)
	d.stages = append(d.stages, s)
	return nil
}

// stage returns an earlier stage by its name or number, nil for another image.
func (d *dockerfile) stage(name string) *stage {
	for n := range d.stages {
		if strings.EqualFold(d.stages[n].name, name) || strconv.Itoa(n) == name {
			d.stages[n].settle()
			return &d.stages[n]
		}
	}
	return nil
}

// copy follows a COPY instruction: files of the context, and flags of earlier stages.
func (d *dockerfile) copy(s *stage, c *instructions.CopyCommand, source sourceLine) {
	before := len(s.copies)
	s.jail = s.jail || isJailImage(c.From) || c.From != "" && slices.ContainsFunc(c.SourcePaths, func(from string) bool { return jailProgram.MatchString(path.Base(from)) })
	if c.From == "" {
		s.copyFiles(c.SourcesAndDest, nil, source)
	} else if earlier := d.stage(c.From); earlier != nil && earlier != s {
		s.unclear, s.restricted = append(s.unclear, earlier.unclear...), append(s.restricted, earlier.restricted...)
		s.copyFiles(c.SourcesAndDest, earlier, source)
	}
	if !slices.ContainsFunc(s.copies[before:], copied.isFlag) {
		return
	}
	if c.Parents || len(c.ExcludePatterns) > 0 {
		s.unclear = append(s.unclear, source)
	}
	if c.Chmod != "" && !readableMode.MatchString(c.Chmod) {
		s.restricted = append(s.restricted, source)
	}
}

// copyFiles adds the files of a COPY or ADD instruction, from the context or from an earlier stage.
func (s *stage) copyFiles(files instructions.SourcesAndDest, earlier *stage, source sourceLine) {
	to := path.Clean(absolute(s.workdir, files.DestPath))
	folder := strings.HasSuffix(files.DestPath, "/") || path.Base(files.DestPath) == "." || len(files.SourcePaths)+len(files.SourceContents) > 1 ||
		to == "/" || slices.Contains(s.folders, to) || rules.UsuallyFolder(to)
	before := len(s.copies)
	defer func() {
		for n := range s.copies[before:] {
			s.copies[before+n].number = source.number
		}
	}()
	add := func(c copied) {
		c.to = to
		if folder {
			c.to = path.Join(to, c.name)
		} else if c.isFlag() && !isFlagFile(to) && path.Base(to) != c.name {
			c.unclear = source
		}
		s.copies = append(s.copies, c)
	}
	for _, content := range files.SourceContents {
		add(copied{name: content.Path, text: content.Data})
		s.texts[s.copies[len(s.copies)-1].to] = content.Data
	}
	for _, from := range files.SourcePaths {
		if earlier != nil {
			s.copyStage(earlier, absolute("/", from), to, add)
		} else {
			s.copyContext(path.Join(".", from), to, add)
		}
	}
}

// copyContext adds a file of the build context, the content of one of its folders, or the files that match a pattern.
func (s *stage) copyContext(from, to string, add func(copied)) {
	names := []string{from}
	if matches, err := filepath.Glob(filepath.Join(s.context, filepath.FromSlash(from))); err == nil && strings.ContainsAny(from, "*?[") {
		names = nil
		for _, match := range matches {
			if name, err := filepath.Rel(s.context, match); err == nil {
				names = append(names, filepath.ToSlash(name))
			}
		}
	}
	for _, name := range names {
		source := filepath.Join(s.context, filepath.FromSlash(name))
		if name != "." && !s.files.isFolder(source) {
			add(copied{from: name, name: path.Base(name)})
			continue
		}
		s.copies = append(s.copies, copied{from: name, to: to, folder: true})
		for _, flag := range s.files.flagsBelow(source) {
			s.copies = append(s.copies, copied{from: path.Join(name, flag), to: path.Join(to, flag)})
		}
	}
}

// copyStage adds the flags of an earlier stage that are at a path or below it.
func (s *stage) copyStage(source *stage, from, to string, add func(copied)) {
	for _, c := range source.copies {
		below, inside := strings.CutPrefix(c.to, strings.TrimSuffix(from, "/")+"/")
		switch {
		case !c.isFlag():
		case inside:
			c.to = path.Join(to, below)
			s.copies = append(s.copies, c)
		case c.to == from:
			c.name = path.Base(from)
			add(c)
		}
	}
}

// settle decides about destinations that may be folders, when all instructions of a stage are known: one is a folder if
// an instruction names something below it.
func (s *stage) settle() {
	for n := range s.copies {
		c := &s.copies[n]
		if c.unclear == (sourceLine{}) {
			continue
		}
		above := func(other string) bool { return strings.HasPrefix(other+"/", c.to+"/") }
		named := func(line string) bool { return strings.Contains(line, c.to+"/") }
		if slices.ContainsFunc(s.folders, above) || slices.ContainsFunc(s.lines, named) || slices.ContainsFunc(s.copies, func(o copied) bool { return above(o.to) && (o.folder || o.to != c.to) }) {
			c.to = path.Join(c.to, c.name)
		} else {
			s.unclear = append(s.unclear, c.unclear)
		}
		c.unclear = sourceLine{}
	}
	s.searchRuns()
}

func absolute(workdir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(workdir, name)
}

// looksLikeDockerfile reports whether a text without a name begins as a Dockerfile does.
func looksLikeDockerfile(content []byte) bool {
	parsed, err := parser.Parse(bytes.NewReader(content))
	if err != nil {
		return false
	}
	for _, node := range parsed.AST.Children {
		if !strings.EqualFold(node.Value, "ARG") {
			return strings.EqualFold(node.Value, "FROM") && node.Next != nil
		}
	}
	return false
}
