package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// prepositions are words that name no thing: a variable of such a name has to be looked up wherever it is used.
var prepositions = []string{
	"of", "is", "has", "what", "why", "where", "when", "who", "which", "how", "one", "some", "more", "most", "others", "at", "by", "again",
}

// standardSuffixes are names of the standard library and of controller-runtime.
var standardSuffixes = []string{"IndexOf", "TypeOf", "ValueOf", "KindOf", "DeleteAllOf"}

// nounClauses are turns of phrase that stand for a noun and have to be read twice.
var nounClauses = regexp.MustCompile(`(^|[.:;] )Of [a-z]|\b[Tt](hat|hose) of\b|\b[Tt]he ones? (that|which|who)\b|\b[Tt]hose (that|which|who)\b|\b[Ww]hat (is|was|are|were|has|had)\b`)

// TestNamesAreNounsAndVerbs holds product code to the grammar of names in CONTRIBUTING.md.
func TestNamesAreNounsAndVerbs(t *testing.T) {
	functions := 0
	for path, file := range productFiles(t) {
		ast.Inspect(file.tree, func(node ast.Node) bool {
			if f, ok := node.(*ast.FuncDecl); ok {
				functions++
				if problem := functionName(f.Name.Name); problem != "" {
					t.Errorf("%s:%d: %s %s", path, file.line(f.Pos()), f.Name.Name, problem)
				}
			}
			return true
		})
		for _, name := range slices.Concat(variables(file.tree), fieldNames(file.tree)) {
			if slices.Contains(prepositions, name.Name) {
				t.Errorf("%s:%d: the variable %s is no noun", path, file.line(name.Pos()), name.Name)
			}
			if strings.HasSuffix(name.Name, "Of") && !strings.HasSuffix(name.Name, "PartOf") { // app.kubernetes.io/part-of
				t.Errorf("%s:%d: the variable %s ends in Of", path, file.line(name.Pos()), name.Name)
			}
		}
	}
	if functions < 2000 {
		t.Fatalf("only %d functions were found", functions)
	}
}

// TestExportedCommentsAreSentences holds doc comments of exported declarations to subject, verb and object.
func TestExportedCommentsAreSentences(t *testing.T) {
	comments := 0
	for path, file := range productFiles(t) {
		for _, doc := range exportedComments(file.tree) {
			comments++
			if found := nounClauses.FindString(sentences(doc)); found != "" {
				t.Errorf("%s:%d: the comment says %q: use a noun, in a sentence of subject, verb and object", path, file.line(doc.Pos()), found)
			}
		}
	}
	if comments < 1500 {
		t.Fatalf("only %d comments were found", comments)
	}
}

// TestTheGrammarFindsViolations shows that both checks above can fail.
func TestTheGrammarFindsViolations(t *testing.T) {
	for _, name := range []string{"Of", "of", "causeOf", "PortsOf"} {
		if functionName(name) == "" {
			t.Errorf("%s passes as the name of a function", name)
		}
	}
	for _, name := range []string{"Compute", "IndexOf", "newRow", "Offset"} {
		if problem := functionName(name); problem != "" {
			t.Errorf("%s %s", name, problem)
		}
	}
	for _, text := range []string{
		"Of those nothing is kept.", "Limit is that of a pod.", "Key is the one that is used.", "Name says what is kept.", "It ends. Of all pods one is left.",
	} {
		if nounClauses.FindString(text) == "" {
			t.Errorf("%q passes", text)
		}
	}
	if text := "Limit is the maximum number of pods, which the scheduler counts."; nounClauses.MatchString(text) {
		t.Errorf("%q does not pass", text)
	}
}

// functionName returns the violation of a name of a function or method; "" if there is none.
func functionName(name string) string {
	if strings.EqualFold(name, "of") {
		return "says nothing where it is called"
	}
	if strings.HasSuffix(name, "Of") && !slices.Contains(standardSuffixes, name) {
		return "ends in Of: use a verb, or a noun with its role in front"
	}
	return ""
}

type productFile struct {
	tree      *ast.File
	positions *token.FileSet
}

func (f productFile) line(pos token.Pos) int { return f.positions.Position(pos).Line }

// productFiles parses the code that is neither generated nor a test, by path.
func productFiles(t *testing.T) map[string]productFile {
	t.Helper()
	files := map[string]productFile{}
	for _, path := range sources(t, ".go") {
		product := strings.HasPrefix(path, "internal/") || strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "api/")
		if !product || strings.HasSuffix(path, "_test.go") {
			continue
		}
		positions := token.NewFileSet()
		tree, err := parser.ParseFile(positions, filepath.Join("..", path), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !ast.IsGenerated(tree) {
			files[path] = productFile{tree, positions}
		}
	}
	return files
}

func fieldNames(file *ast.File) (names []*ast.Ident) {
	ast.Inspect(file, func(node ast.Node) bool {
		if s, ok := node.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				names = append(names, field.Names...)
			}
		}
		return true
	})
	return names
}

// exportedComments returns the doc comments of exported declarations and fields, and of the package.
func exportedComments(file *ast.File) (docs []*ast.CommentGroup) {
	add := func(doc *ast.CommentGroup) {
		if doc != nil {
			docs = append(docs, doc)
		}
	}
	add(file.Doc)
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			if n.Name.IsExported() {
				add(n.Doc)
			}
			return false
		case *ast.GenDecl:
			if len(n.Specs) == 1 && exportedSpec(n.Specs[0]) {
				add(n.Doc)
			}
		case *ast.TypeSpec:
			if !n.Name.IsExported() {
				return false
			}
			add(n.Doc)
		case *ast.ValueSpec:
			if exportedSpec(n) {
				add(n.Doc)
			}
		case *ast.Field:
			if len(n.Names) > 0 && n.Names[0].IsExported() {
				add(n.Doc)
			}
		}
		return true
	})
	return docs
}

func exportedSpec(spec ast.Spec) bool {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return s.Name.IsExported()
	case *ast.ValueSpec:
		return s.Names[0].IsExported()
	}
	return false
}

// sentences returns a comment as one line, without markers such as +kubebuilder.
func sentences(doc *ast.CommentGroup) string {
	var words []string
	for line := range strings.Lines(doc.Text()) {
		if !strings.HasPrefix(strings.TrimSpace(line), "+") {
			words = append(words, strings.Fields(line)...)
		}
	}
	return strings.Join(words, " ")
}
