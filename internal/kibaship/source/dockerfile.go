package source

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// translate returns a Dockerfile in the syntax of the builder, or why the builder cannot do what a Dockerfile says. BuildKit's parser
// reads it, as in Docker. kaniko reads the same syntax, and skips in silence what it does not know how to do.
func translate(content []byte, architecture string) ([]byte, error) {
	if syntax, _, _, found := parser.DetectSyntax(content); found && !dockerSyntax.MatchString(syntax) {
		return nil, fmt.Errorf("# syntax=%s: only the syntax of docker/dockerfile is supported", syntax)
	}
	parsed, err := parser.Parse(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	stages, _, err := instructions.Parse(parsed.AST, &linter.Linter{})
	if err != nil {
		return nil, err
	}
	scripts := map[int]string{} // by their line
	for _, stage := range stages {
		if problem := checkPlatform(stage.Platform, architecture); problem != "" {
			return nil, refusal(stage.Location, stage.SourceCode, problem)
		}
		for _, command := range stage.Commands {
			problem := checkCommand(command)
			if run, ok := command.(*instructions.RunCommand); ok && problem == "" && len(run.Files) > 0 {
				scripts[run.Location()[0].Start.Line], problem = readScript(run)
			}
			if problem != "" {
				text := command.Name()
				if printed, ok := command.(fmt.Stringer); ok {
					text = printed.String()
				}
				return nil, refusal(command.Location(), text, problem)
			}
		}
	}
	return replace(content, parsed.AST.Children, scripts), nil
}

// maxScript is the size of a script that still fits into an argument of a program on Linux, in any encoding.
const maxScript = 24 << 10

// readScript returns what the shell has to run for a RUN with here-documents, as BuildKit has it run, or why that is not possible.
func readScript(c *instructions.RunCommand) (script, problem string) {
	script = strings.Join(c.CmdLine, " ")
	if parser.MustParseHeredoc(script) != nil {
		if script = c.Files[0].Data; c.Files[0].Chomp {
			script = parser.ChompHeredocContent(script)
		}
		if strings.HasPrefix(script, "#!") {
			return "", "the builder runs here-documents by the shell. Put the program into a file of the repository, COPY it, and RUN it"
		}
	} else {
		for _, file := range c.Files {
			script += "\n" + file.Data + file.Name
		}
	}
	if len(script) > maxScript {
		return "", fmt.Sprintf("the here-document is larger than %d bytes. Put it into a file of the repository, COPY it, and RUN it", maxScript)
	}
	return script, ""
}

// replace writes each RUN with a script as one line, which the shell makes the script of again. Every character that the shell
// could read anything into is written as its octal number.
func replace(content []byte, nodes []*parser.Node, scripts map[int]string) []byte {
	lines := bytes.SplitAfter(content, []byte("\n"))
	for _, node := range nodes {
		script, found := scripts[node.StartLine]
		if !found {
			continue
		}
		var text strings.Builder
		for _, b := range []byte(script) {
			if plain := b == ' ' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'; plain {
				text.WriteByte(b)
			} else {
				fmt.Fprintf(&text, `\0%03o`, b)
			}
		}
		words := append([]string{"RUN"}, node.Flags...)
		line := strings.Join(append(words, fmt.Sprintf(`eval "$(printf '%%b' '%s')"`, text.String())), " ")
		for i := node.StartLine - 1; i < node.EndLine; i++ {
			lines[i] = nil
		}
		lines[node.StartLine-1] = []byte(line + "\n")
	}
	return bytes.Join(lines, nil)
}

// dockerSyntax matches the parser of BuildKit itself, of any version.
var dockerSyntax = regexp.MustCompile(`^(docker\.io/)?docker/dockerfile(-upstream)?([:@]|$)`)

// refusal is an error with the line and the first words of an instruction.
func refusal(location []parser.Range, text, problem string) error {
	first, _, _ := strings.Cut(text, "\n")
	if words := []rune(first); len(words) > 60 {
		first = string(words[:60]) + "…"
	}
	if len(location) == 0 {
		return errors.New(first + ": " + problem)
	}
	return fmt.Errorf("line %d: %s: %s", location[0].Start.Line, first, problem)
}

const (
	noHeredoc  = "the builder has no here-documents in COPY and ADD. Put the text into a file of the repository, or write it in a RUN"
	noExclude  = "the builder ignores --exclude. List the files in .dockerignore"
	noChecksum = "the builder ignores --checksum. Download the file in a RUN that checks it"
)

// checkCommand returns why the builder does not do what an instruction says, "" if it does.
func checkCommand(command instructions.Command) string {
	switch c := command.(type) {
	case *instructions.RunCommand:
		return checkRun(c)
	case *instructions.OnbuildCommand:
		return checkTrigger(c)
	case *instructions.CopyCommand:
		switch {
		case len(c.SourceContents) > 0:
			return noHeredoc
		case len(c.ExcludePatterns) > 0:
			return noExclude
		case c.Parents:
			return "the builder ignores --parents. Name the directories in the destination"
		}
	case *instructions.AddCommand:
		switch {
		case len(c.SourceContents) > 0:
			return noHeredoc
		case len(c.ExcludePatterns) > 0:
			return noExclude
		case c.Checksum != "":
			return noChecksum
		case c.Unpack != nil:
			return "the builder ignores --unpack. Unpack the archive in a RUN"
		}
		for _, from := range c.SourcePaths {
			if gitSource.MatchString(from) {
				return "the builder does not clone repositories. Use a submodule, or git in a RUN"
			}
		}
	}
	return ""
}

// checkTrigger checks an instruction that builds upon the image run. Nothing translates it there.
func checkTrigger(c *instructions.OnbuildCommand) string {
	parsed, err := parser.Parse(strings.NewReader(c.Expression))
	if err != nil {
		return err.Error()
	}
	instruction, err := instructions.ParseInstruction(parsed.AST.Children[0])
	if err != nil {
		return err.Error()
	}
	if run, ok := instruction.(*instructions.RunCommand); ok && len(run.Files) > 0 {
		return "the builder has no here-documents in ONBUILD. Put the text into a file of the repository"
	}
	if command, ok := instruction.(instructions.Command); ok {
		return checkCommand(command)
	}
	return ""
}

// gitSource matches a source of ADD that BuildKit clones: https://docs.docker.com/reference/dockerfile/#add
var gitSource = regexp.MustCompile(`^(git|ssh)://|^git@|^https?://.*\.git([#?]|$)`)

// checkRun refuses what the builder would ignore silently, since the image would then be another one.
func checkRun(c *instructions.RunCommand) string {
	// Only then the types of mounts are known. A variable stays as it is.
	if err := c.Expand(func(word string) (string, error) { return word, nil }); err != nil {
		return err.Error()
	}
	for _, mount := range instructions.GetMounts(c) {
		if mount.Type == instructions.MountTypeCache && mount.From == "" {
			continue // without it the command does the same, more slowly
		}
		return fmt.Sprintf("the builder ignores --mount=type=%s. COPY what the command reads, and let it need no secret", mount.Type)
	}
	switch {
	case instructions.GetNetwork(c) != instructions.NetworkDefault:
		return "the builder ignores --network=" + instructions.GetNetwork(c)
	case instructions.GetSecurity(c) == instructions.SecurityInsecure:
		return "the builder ignores --security=insecure: a build has no privileges"
	case len(instructions.GetDevices(c)) > 0:
		return "the builder ignores --device: a build has no devices"
	}
	return ""
}

// checkPlatform returns why the builder does not build on the platform that FROM names, "" if it does. It builds for the platform
// of its node, which is what the variables of BuildKit mean here.
func checkPlatform(platform, architecture string) string {
	switch {
	case platform == "", strings.Contains(platform, "$"):
		return ""
	case platform == "linux", platform == architecture, platform == "linux/"+architecture, strings.HasPrefix(platform, "linux/"+architecture+"/"):
		return ""
	default:
		return "the builder ignores --platform, and runs on linux/" + architecture
	}
}
