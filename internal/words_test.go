package internal_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// vague are words of prose that the glossary in CONTRIBUTING.md replaces by a noun or by a plainer word: none in
// what users read, few in comments.
var vague = []string{
	"somebody", "nobody", "anybody", "everybody", "whoever", "whatever", "whom", "whomever", "anew", "meanwhile",
	"hitherto", "for ever", "thereof", "beside", "at once", "by and by", "shall",
}

// plain are words and phrases that have a plainer one: none in what users read, names of specs and messages of tests among it.
var plain = []string{"told", "mended", "goes on", "go on"}

// maxVagueComments is how many of those words all comments of the module may hold together.
const maxVagueComments = 20

// private are words that this project once used for what the field has a name for: none in an identifier.
var private = []string{
	"patience", "patiently", "precedence", "restraint", "undisturbed", "overtaken", "verdict", "verdicts", "judge",
	"judged", "judgement", "judges", "ledger", "woken", "wakeup", "walltime", "proxyroom", "sighting", "sightings",
	"giveway", "goeson", "keeper", "inlet", "newcomer", "newcomers", "janitor", "told", "untold", "wish", "wishes",
	"longest", "fewest", "patient", "impatient", "underway", "atonce", "whoever", "nobody", "somebody", "anew", "meanwhile",
}

// standardNames are identifiers that hold a private word because others have named them so.
var standardNames = []string{"Precedence"} // a field of client-go

var (
	vagueWord = regexp.MustCompile(`(?i)\b(` + strings.Join(vague, "|") + `)\b`)
	readWord  = regexp.MustCompile(`(?i)\b(` + strings.Join(slices.Concat(vague, plain), "|") + `)\b`)
)

func TestStringsAndNamesSpeakTheLanguageOfTheField(t *testing.T) {
	comments := map[string]int{}
	total := 0
	for _, path := range sources(t, ".go") {
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, filepath.Join("..", path), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(file) || path == "internal/words_test.go" {
			continue
		}
		at := func(pos token.Pos) string {
			return path + ":" + strings.TrimPrefix(positions.Position(pos).String(), positions.Position(pos).Filename+":")
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.BasicLit:
				if found := readWord.FindString(n.Value); n.Kind == token.STRING && found != "" {
					t.Errorf("%s: a string says %q", at(n.Pos()), found)
				}
			case *ast.Ident:
				if word := privateWord(n.Name); word != "" && !slices.Contains(standardNames, n.Name) {
					t.Errorf("%s: the name %s holds %q", at(n.Pos()), n.Name, word)
				}
			}
			return true
		})
		for _, group := range file.Comments {
			if found := vagueWord.FindAllString(group.Text(), -1); len(found) > 0 {
				comments[at(group.Pos())+" "+strings.Join(found, ", ")] = len(found)
				total += len(found)
			}
		}
	}
	if total > maxVagueComments {
		t.Errorf("comments hold %d vague words, %d are allowed:", total, maxVagueComments)
		for where := range comments {
			t.Log(where)
		}
	}
}

func TestPagesSpeakTheLanguageOfTheField(t *testing.T) {
	texts := append(sources(t, ".md"), sources(t, ".yaml")...)
	// Scripts, targets of make, programs in other languages, pages of the platform API, dashboards; a script has no extension.
	for _, extension := range []string{"", ".mk", ".py", ".ts", ".js", ".css", ".html", ".tpl", ".txt", ".toml", ".properties", ".json"} {
		texts = append(texts, sources(t, extension)...)
	}
	for _, path := range texts {
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 || path == "LICENSE" {
			continue
		}
		if path == "CONTRIBUTING.md" { // the glossary quotes what it replaces
			before, after, _ := strings.Cut(string(text), "<!-- glossary -->")
			_, after, _ = strings.Cut(after, "<!-- /glossary -->")
			text = []byte(before + after)
		}
		for n, line := range strings.Split(string(text), "\n") {
			if found := readWord.FindString(line); found != "" {
				t.Errorf("%s:%d says %q", path, n+1, found)
			}
		}
	}
}

// sources are the files of the module with an extension that are written by hand, from its root.
func sources(t *testing.T, extension string) (all []string) {
	t.Helper()
	generated := []string{"bundle", "catalog", "bin", "dist", "node_modules", "crd", "testdata"}
	// Templates of the chart are written by hand, and checked.
	inDeploy := []string{"../deploy/packages", "../deploy/schemas", "../deploy/helm/berg-operator/files"}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") && path != ".."
		if entry.IsDir() && (hidden || slices.Contains(generated, entry.Name()) || slices.Contains(inDeploy, filepath.ToSlash(path))) {
			return filepath.SkipDir
		}
		if path == filepath.Join("..", "docs", "api.md") || filepath.Dir(path) == filepath.Join("..", "deploy") {
			return nil
		}
		if entry.Type().IsRegular() && filepath.Ext(path) == extension {
			all = append(all, filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator))))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("no file with the extension %q was found", extension)
	}
	return all
}

// privateWord returns the first private word among those of an identifier in camel case, "" if there is none.
func privateWord(name string) string {
	var words []string
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || unicode.IsUpper(runes[i]) || runes[i] == '_' {
			words = append(words, strings.ToLower(strings.Trim(string(runes[start:i]), "_")))
			start = i
		}
	}
	joined := append(slices.Clone(words), strings.ToLower(name))
	for i := 1; i < len(words); i++ {
		joined = append(joined, words[i-1]+words[i])
	}
	for _, word := range joined {
		if slices.Contains(private, word) {
			return word
		}
	}
	return ""
}

// Users know API groups and CPUs. Families are a word of the code and of the values of the chart. What measurements printed stays.
func TestPagesForUsersSayAPIGroupAndCPU(t *testing.T) {
	own := regexp.MustCompile(`(?i)\b(famil(y|ies)|processors?)\b`)
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|<!--.*?-->")
	checked := 0
	for _, path := range sources(t, ".md") {
		if path != "README.md" && path != "SECURITY.md" && !strings.HasPrefix(path, "docs/") ||
			strings.HasPrefix(path, "docs/adr/") || path == "docs/operatorhub.md" || path == "docs/performance.md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		checked++
		for _, found := range own.FindAllString(code.ReplaceAllString(string(text), ""), -1) {
			t.Errorf("%s says %q", path, found)
		}
	}
	if checked < 60 {
		t.Errorf("only %d pages were found", checked)
	}
}

// maxPageLine is how many characters a line of a page may have, so that a change of a sentence is a short difference.
const maxPageLine = 140

// Tables, code and images cannot be broken into lines.
func TestLinesOfPagesAreShort(t *testing.T) {
	for _, path := range sources(t, ".md") {
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for n, line := range strings.Split(string(text), "\n") {
			trimmed := strings.TrimSpace(line)
			if strings.HasPrefix(trimmed, "```") {
				code = !code
			}
			if code || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "![") {
				continue
			}
			if length := utf8.RuneCountInString(line); length > maxPageLine {
				t.Errorf("%s:%d has %d characters, at most %d", path, n+1, length, maxPageLine)
			}
		}
	}
}
