// Package dockerfiles checks the Dockerfiles with the parser and the linter of
// BuildKit, where no daemon runs that could build them. Of what they would build,
// make image and its like make images of the same content.
package dockerfiles

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

const root = "../../.."

// lint returns the stages of a Dockerfile, and what BuildKit has to say of it.
func lint(text []byte) (stages []instructions.Stage, warnings []string, err error) {
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	for _, w := range tree.Warnings {
		warnings = append(warnings, w.Short)
	}
	stages, _, err = instructions.Parse(tree.AST, linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, _ []parser.Range) {
			warnings = append(warnings, fmt.Sprintf("%s: %s", rule, message))
		},
	}))
	return stages, warnings, err
}

// files returns what a build is sent of the tree in root: what .dockerignore
// leaves.
func files(t *testing.T) []string {
	t.Helper()
	ignore, err := os.Open(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ignore.Close() }()
	patterns, err := ignorefile.ReadAll(ignore)
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	var sent []string
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name == ".git" || name == "bin" || name == "dist" {
				return filepath.SkipDir
			}
			return nil
		}
		ignored, err := matcher.MatchesOrParentMatches(name)
		if err == nil && !ignored {
			sent = append(sent, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// missing returns what a Dockerfile copies and a build is not sent.
func missing(stages []instructions.Stage, sent []string) []string {
	var gone []string
	for _, stage := range stages {
		for _, command := range stage.Commands {
			c, ok := command.(*instructions.CopyCommand)
			if !ok || c.From != "" {
				continue
			}
			for _, source := range c.SourcePaths {
				source = strings.TrimSuffix(source, "/")
				if !slices.ContainsFunc(sent, func(name string) bool { return name == source || strings.HasPrefix(name, source+"/") }) {
					gone = append(gone, source)
				}
			}
		}
	}
	return gone
}

func TestDockerfiles(t *testing.T) {
	sent := files(t)
	paths, err := filepath.Glob(filepath.Join(root, "*Dockerfile"))
	if err != nil || len(paths) != 2 {
		t.Fatalf("found %q, want two Dockerfiles (%v)", paths, err)
	}
	paths = append(paths, filepath.Join(root, "catalog", "Dockerfile"), filepath.Join(root, "test", "scorecard", "Dockerfile"))
	bundles, err := filepath.Glob(filepath.Join(root, "deploy", "packages", "*", "bundle.Dockerfile"))
	if err != nil || len(bundles) != 4 {
		t.Fatalf("found %q, want Dockerfiles of four bundles (%v)", bundles, err)
	}
	for _, path := range append(paths, bundles...) {
		t.Run(strings.TrimPrefix(path, root+"/"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			stages, warnings, err := lint(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings {
				t.Error(w)
			}
			for _, source := range missing(stages, sent) {
				t.Errorf("COPY %s: there is no such file, or .dockerignore keeps it back", source)
			}
			if last := stages[len(stages)-1]; last.BaseName != "scratch" {
				t.Errorf("the image is based on %s, want scratch", last.BaseName)
			}
		})
	}
}

// modulesWithout returns the modules of this tree that go.mod puts in the place of published ones, whose go.mod a Dockerfile
// does not copy before it downloads the others: go would stop there.
func modulesWithout(stages []instructions.Stage, gomod string) (all []string) {
	for _, replaced := range regexp.MustCompile(`=> \./(\S+)`).FindAllStringSubmatch(gomod, -1) {
		for _, stage := range stages {
			copied := false
			for _, command := range stage.Commands {
				switch c := command.(type) {
				case *instructions.CopyCommand:
					copied = copied || slices.Contains(c.SourcePaths, replaced[1]+"/go.mod")
				case *instructions.RunCommand:
					if strings.Contains(strings.Join(c.CmdLine, " "), "go mod download") && !copied {
						all = append(all, replaced[1])
					}
				}
			}
		}
	}
	return all
}

func TestModulesOfTheTreeAreThere(t *testing.T) {
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Dockerfile", "test/scorecard/Dockerfile"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		stages, _, err := lint(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range modulesWithout(stages, string(gomod)) {
			t.Errorf("%s: go mod download needs %s/go.mod", name, module)
		}
		if got := modulesWithout(stages, string(gomod)+"\nreplace example.com/other => ./other\n"); !slices.Contains(got, "other") {
			t.Errorf("%s: a module that is not copied is not found: %q", name, got)
		}
	}
}

func TestTheLinterFindsWhatIsWrong(t *testing.T) {
	for want, text := range map[string]string{
		"MaintainerDeprecated": "FROM scratch\nMAINTAINER me\n",
		"FromAsCasing":         "FROM scratch as build\n",
		"StageNameCasing":      "FROM scratch AS Build\n",
	} {
		_, warnings, err := lint([]byte(text))
		if err != nil || !strings.Contains(strings.Join(warnings, "\n"), want) {
			t.Errorf("%q: warnings %q, %v; want %s", text, warnings, err, want)
		}
	}
	if _, _, err := lint([]byte("FROM scratch\nCOPPY a b\n")); err == nil {
		t.Error("an unknown instruction is accepted")
	}
	stages, _, err := lint([]byte("FROM scratch\nCOPY README.md nowhere /\n"))
	if got := missing(stages, []string{"go.mod"}); err != nil || !slices.Equal(got, []string{"README.md", "nowhere"}) {
		t.Errorf("missing: %q, %v", got, err)
	}
}

// Most licences of linked modules ask for their texts next to the program, in every image that is published.
func TestImagesHaveTheNoticesOfLicences(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	stages, _, err := lint(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range stages[1:] {
		copied := slices.ContainsFunc(stage.Commands, func(command instructions.Command) bool {
			c, ok := command.(*instructions.CopyCommand)
			return ok && c.From != "" && c.DestPath == "/NOTICES.txt"
		})
		if !copied {
			t.Errorf("the stage %q has no /NOTICES.txt", stage.Name)
		}
	}
}

// A program is compiled on the platform that builds its image, for the platform that runs it, from
// all of its sources.
func TestProgramsAreCrossCompiled(t *testing.T) {
	for file, program := range map[string]string{"Dockerfile": "./cmd/berg-operator", "test/scorecard/Dockerfile": "./test/scorecard"} {
		t.Run(file, func(t *testing.T) { expectCrossCompiled(t, file, program) })
	}
}

func expectCrossCompiled(t *testing.T, file, program string) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	stages, _, err := lint(text)
	if err != nil {
		t.Fatal(err)
	}
	build, image := stages[0], stages[len(stages)-1]
	if build.Platform != "$BUILDPLATFORM" {
		t.Errorf("the compiler runs on %q, want $BUILDPLATFORM", build.Platform)
	}
	var compile, user string
	var copied []string
	for _, command := range build.Commands {
		switch c := command.(type) {
		case *instructions.RunCommand:
			if text := strings.Join(c.CmdLine, " "); strings.Contains(text, "go build") {
				compile = text
			}
		case *instructions.CopyCommand:
			copied = append(copied, c.SourcePaths...)
		}
	}
	for _, command := range image.Commands {
		if c, ok := command.(*instructions.UserCommand); ok {
			user = c.User
		}
	}
	for _, part := range []string{"CGO_ENABLED=0", "GOOS=${TARGETOS}", "GOARCH=${TARGETARCH}", "go build", program} {
		if !strings.Contains(compile, part) {
			t.Errorf("%q lacks %q", compile, part)
		}
	}
	if !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user) {
		t.Errorf("the user is %q, want numbers: Kubernetes must see that it is not root", user)
	}

	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if and .Module .Module.Main}}{{.Dir}}{{end}}", program)
	list.Dir = root
	packages, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for dir := range strings.FieldsSeq(string(packages)) {
		name, err := filepath.Rel(top, dir)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(copied, func(folder string) bool { return strings.HasPrefix(name+"/", folder) }) {
			t.Errorf("the program needs %s, which is not copied", name)
		}
	}
}
