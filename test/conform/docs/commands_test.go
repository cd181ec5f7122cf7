package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/command"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

var (
	// shell is a block of commands, and inline a piece of code in a sentence.
	shell  = regexp.MustCompile("(?s)```(?:sh|console|bash)\n(.*?)```")
	inline = regexp.MustCompile("`([^`\n]+)`")
	// anyBlock is also one of another language.
	anyBlock = regexp.MustCompile("(?s)```.*?```")
	// quoted is one word to the shell.
	quoted = regexp.MustCompile(`'[^']*'`)
	// parted is where a command ends and the next begins.
	parted = regexp.MustCompile(`\s*(?:&&|\|\|?|;|\$\(|\)|"|>)\s*`)
)

// typed returns what a page has the reader type: each command in a line, without what continues lines.
func typed(text string) []string {
	var code []string
	for _, m := range shell.FindAllStringSubmatch(text, -1) {
		code = append(code, strings.Split(strings.ReplaceAll(m[1], "\\\n", " "), "\n")...)
	}
	for _, m := range inline.FindAllStringSubmatch(anyBlock.ReplaceAllString(text, ""), -1) {
		code = append(code, m[1])
	}
	var out []string
	for _, line := range code {
		line, _, _ = strings.Cut(line, " # ")
		for _, one := range parted.Split(line, -1) {
			out = append(out, strings.TrimPrefix(strings.TrimSpace(one), "sudo "))
		}
	}
	return out
}

func TestCommandsOfPages(t *testing.T) {
	page := "Run `make image ARCH=x`.\n```sh\nkubectl berg top \\\n  -A | less\nsudo make e2e && true # all\n```\n```yaml\nmake: no\n```\n"
	if got, want := typed(page), []string{"kubectl berg top    -A", "less", "make e2e", "true", "", "make image ARCH=x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What pages have the reader make exists, and so do the variables that they set.
func TestPagesCallTargetsThatExist(t *testing.T) {
	var makefiles strings.Builder
	for _, file := range append(glob(t, "hack/make/*.mk"), "Makefile", "hack/versions.mk") {
		makefiles.Write(read(t, file))
	}
	text := makefiles.String()
	variable := regexp.MustCompile(`^([A-Z][A-Z0-9_]*)=`)
	called := 0
	for _, page := range pages(t) {
		for _, line := range typed(string(read(t, page))) {
			words := strings.Fields(quoted.ReplaceAllString(line, "x"))
			if len(words) < 2 || words[0] != "make" {
				continue
			}
			for _, word := range words[1:] {
				if set := variable.FindStringSubmatch(word); set != nil {
					called++
					if !regexp.MustCompile(`\b` + set[1] + `\b`).MatchString(text) {
						t.Errorf("%s: %q sets %s, which no part of the Makefile reads", page, line, set[1])
					}
				} else if regexp.MustCompile(`^[a-z][a-z0-9-]*$`).MatchString(word) {
					called++
					if !hasTarget(t, text, word) {
						t.Errorf("%s: %q calls %s, which is no target", page, line, word)
					}
				} else {
					break // such as an option, or what only stands for a name
				}
			}
		}
	}
	if called < 50 {
		t.Errorf("only %d targets and variables were found", called)
	}
}

// hasTarget reports whether a target stands in the Makefile, or is one of a suite of integration tests.
func hasTarget(t *testing.T, makefiles, target string) bool {
	t.Helper()
	if suite, ok := strings.CutPrefix(target, "test-integration-"); ok {
		tests, err := filepath.Glob(filepath.Join(root, "test/integration", strings.Replace(suite, "-", "/", 1), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if len(tests) > 0 {
			return true
		}
	}
	return regexp.MustCompile(`(?m)^` + target + `(?: [^:\n]*)?:`).MatchString(makefiles)
}

// Commands of the plugin, and their options, exist.
func TestPagesCallThePluginAsItIs(t *testing.T) {
	called := 0
	for _, page := range pages(t) {
		if page == "CHANGELOG.md" { // also says what was
			continue
		}
		for _, line := range typed(string(read(t, page))) {
			_, rest, ok := strings.Cut(" "+line, " kubectl berg ")
			if !ok {
				continue
			}
			words := strings.Fields(strings.Trim(rest, "."))
			if len(words) == 0 || !regexp.MustCompile(`^[a-z]+$`).MatchString(words[0]) {
				continue
			}
			called++
			c, _, err := command.New(&console.Console{}, "v0.0.0").Find(words)
			if err != nil || c.Name() == "berg" {
				t.Errorf("%s: %q: there is no such command", page, line)
				continue
			}
			for _, word := range words[1:] {
				if word == "--" {
					break // what follows is another program's
				}
				name, _, _ := strings.Cut(word, "=")
				if !optionExists(c.Flags(), name) && !optionExists(c.InheritedFlags(), name) {
					t.Errorf("%s: %q: kubectl berg %s has no option %s", page, line, c.Name(), name)
				}
			}
		}
	}
	if called < 50 {
		t.Errorf("only %d commands of the plugin were found", called)
	}
}

// optionExists reports whether a word is one of the options, or none at all.
func optionExists(options *pflag.FlagSet, word string) bool {
	switch {
	case strings.HasPrefix(word, "--"):
		name := word[2:]
		return name == "help" || options.Lookup(name) != nil
	case regexp.MustCompile(`^-[a-zA-Z]`).MatchString(word):
		return word[1:2] == "h" || options.ShorthandLookup(word[1:2]) != nil
	}
	return true
}

// file is a path of the repository in a command. What is built is in dist.
var file = regexp.MustCompile(`(?:^|[ =])((?:\./)?(?:config|deploy|docs|test|hack|bundle|catalog|dist)/[A-Za-z0-9_./-]*[A-Za-z0-9_-])`)

// archive begins the name of one: program, version and platform.
var archive = regexp.MustCompile(`^[a-z-]+_v\d+\.\d+\.\d+_[a-z]+_[a-z0-9]+\.`)

// Files and folders in commands exist, or are made by make.
func TestCommandsNameFilesThatExist(t *testing.T) {
	var makefiles strings.Builder
	for _, part := range glob(t, "hack/make/*.mk") {
		makefiles.Write(read(t, part))
	}
	for _, part := range slices.Concat(glob(t, "test/samples/images/*.go"), glob(t, "hack/plugin/*.go")) {
		makefiles.Write(read(t, part))
	}
	named := 0
	for _, page := range pages(t) {
		own := map[string]bool{} // folders that the reader makes
		for _, m := range shell.FindAllStringSubmatch(string(read(t, page)), -1) {
			for _, f := range file.FindAllStringSubmatch(m[1], -1) {
				named++
				path := strings.TrimPrefix(f[1], "./")
				if built, ok := strings.CutPrefix(path, "dist/"); ok {
					if !strings.Contains(makefiles.String(), archive.ReplaceAllString(filepath.Base(built), "%s_%s_%s_%s.")) {
						t.Errorf("%s names %s, which make does not build", page, path)
					}
				} else if made := regexp.MustCompile(`mkdir -p (\S+)`).FindStringSubmatch(m[1]); made != nil && strings.HasPrefix(path, made[1]) {
					own[made[1]] = true
				} else if own[path] {
					continue
				} else if _, err := os.Stat(filepath.Join(root, path)); err != nil {
					t.Errorf("%s names %s, which does not exist", page, path)
				}
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d files were found", named)
	}
}

// Commands that name a version name that of the tree: make chart, which make next-version calls, writes it into the pages that it lists.
func TestCommandsNameTheVersionOfTheTree(t *testing.T) {
	version := regexp.MustCompile(`(?m)^VERSION \?= (\S+)$`).FindSubmatch(read(t, "hack/versions.mk"))
	if version == nil {
		t.Fatal("hack/versions.mk has no version")
	}
	named := 0
	for _, page := range pages(t) {
		for _, m := range regexp.MustCompile(`(?:kubectl-berg_|/berg-operator:|/berg-operator-catalog:|/berg-operator/api@|/berg-operator/)v(\d+\.\d+\.\d+(?:-[a-z]+\.\d+)?)`).FindAllStringSubmatch(string(read(t, page)), -1) {
			named++
			if m[1] != string(version[1]) {
				t.Errorf("%s: %s is not of %s", page, m[0], version[1])
			}
		}
		listed := regexp.MustCompile(`(?m)^VERSIONED_PAGES := .*\b` + regexp.QuoteMeta(page) + `\b`).Match(read(t, "hack/make/development.mk"))
		if has := regexp.MustCompile(`kubectl-berg_v|/berg-operator:v|/berg-operator-catalog:v|/berg-operator/api@v`).Match(read(t, page)); has != listed {
			t.Errorf("%s: names a version: %t, is one of VERSIONED_PAGES: %t", page, has, listed)
		}
	}
	if named < 5 {
		t.Errorf("only %d versions were found", named)
	}
}
