package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// folders are those of the families, below api and docs.
func folders(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, path := range glob(t, "api/*/v[0-9]*") {
		all = append(all, filepath.Base(filepath.Dir(path)))
	}
	return slices.Compact(all)
}

// constants returns the values of the string constants in the API of a family whose name
// begins with a prefix.
func constants(t *testing.T, family, prefix string) []string {
	t.Helper()
	var values []string
	for _, path := range glob(t, "api/"+family+"/*/*.go") {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, prefix) {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
			return true
		})
	}
	if len(values) == 0 {
		t.Fatalf("no constant of %s begins with %s", family, prefix)
	}
	return values
}

const instancePage = "docs/berg/challengeinstance.md"

// fromKubernetes are reasons that the operator passes on from kubelet and scheduler.
var fromKubernetes = []string{"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CrashLoopBackOff", "Unschedulable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "FailedCreatePodSandBox", "Evicted"}

func TestEveryConditionAndReasonIsExplained(t *testing.T) {
	for _, family := range folders(t) {
		var text strings.Builder
		for _, page := range glob(t, "docs/"+family+"/*.md") {
			text.Write(read(t, page))
		}
		for _, name := range append(constants(t, family, "Condition"), constants(t, family, "Reason")...) {
			if !strings.Contains(text.String(), "`"+name+"`") {
				t.Errorf("docs/%s: the condition or reason %s is not explained", family, name)
			}
		}
	}
}

func TestEveryConditionReasonAndPhaseOfAnInstanceIsExplained(t *testing.T) {
	page := string(read(t, instancePage))
	conditions, events := sectionOf(t, page, "Conditions"), sectionOf(t, page, "Events")
	for _, c := range constants(t, "berg", "Condition") {
		if !strings.Contains(conditions, "`"+c+"`") {
			t.Errorf("%s: the condition %s is not explained", instancePage, c)
		}
	}
	for _, r := range constants(t, "berg", "Reason") {
		if !strings.Contains(conditions+events, "`"+r+"`") {
			t.Errorf("%s: the reason %s is not explained", instancePage, r)
		}
	}
	phases := sectionOf(t, page, "Phases")
	for _, p := range bergv1.Phases {
		if !strings.Contains(phases, "`"+string(p)+"`") {
			t.Errorf("%s: the phase %s is not explained", instancePage, p)
		}
	}
	for _, name := range append(constants(t, "berg", "Label"), constants(t, "berg", "Annotation")...) {
		if !strings.Contains(sectionOf(t, page, "Labels and annotations"), "`"+name) {
			t.Errorf("%s: %s is not explained", instancePage, name)
		}
	}
}

const startPage = "docs/berg/start.md"

func TestEveryCauseAndStageIsExplained(t *testing.T) {
	page := string(read(t, startPage))
	causes := sectionOf(t, page, "Causes")
	for _, c := range bergv1.Causes {
		if !strings.Contains(causes, "| `"+string(c)+"` |") {
			t.Errorf("%s: the cause %s is not explained", startPage, c)
		}
		for _, language := range []string{"python", "js"} {
			if !strings.Contains(fenced(t, causes, language), string(c)+`"`) {
				t.Errorf("%s: %s has no sentence for %s", startPage, language, c)
			}
		}
	}
	stages := sectionOf(t, page, "Durations")
	for f := range reflect.TypeFor[bergv1.StartTimes]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.Contains(stages, "| `"+name+"` |") {
			t.Errorf("%s: %s is not explained", startPage, name)
		}
	}
}

// fenced returns the first block of code of a language.
func fenced(t *testing.T, text, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n```"+language+"\n")
	if !found {
		t.Fatalf("no block of %s", language)
	}
	code, _, _ := strings.Cut(rest, "\n```")
	return code
}

const checkPage = "docs/berg/challengecheck.md"

func TestEveryConditionAndReasonOfACheckIsExplained(t *testing.T) {
	section := sectionOf(t, string(read(t, checkPage)), "What it says")
	names := append(constants(t, "berg", "CheckCondition"), constants(t, "berg", "CheckReason")...)
	for _, v := range bergv1.CheckResultTypes {
		names = append(names, string(v))
	}
	for _, name := range names {
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("%s: the condition, reason or result %s is not explained", checkPage, name)
		}
	}
	known := slices.Concat(names, constants(t, "berg", "Reason"))
	for _, m := range reasonLike.FindAllStringSubmatch(firstColumns(section), -1) {
		if !slices.Contains(known, m[1]) {
			t.Errorf("%s: there is no %s", checkPage, m[1])
		}
	}
}

// reasonLike is a word that could only be a condition, a reason or a phase.
var reasonLike = regexp.MustCompile("`([A-Z][a-z]+(?:[A-Z]+[a-z]+)*[A-Z]?)`")

func TestPagesNameNoReasonThatDoesNotExist(t *testing.T) {
	known := slices.Concat(constants(t, "berg", "Condition"), constants(t, "berg", "Reason"), constants(t, "berg", "Termination"), fromKubernetes,
		[]string{"True", "False", "Unknown", "Normal", "Warning", "Challenge", "ChallengeInstance"})
	for _, p := range bergv1.Phases {
		known = append(known, string(p))
	}
	page := string(read(t, instancePage))
	for _, title := range []string{"Phases", "Conditions", "Events"} {
		for _, m := range reasonLike.FindAllStringSubmatch(firstColumns(sectionOf(t, page, title)), -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s: %s: there is no %s", instancePage, title, m[1])
			}
		}
	}
}

// firstColumns returns the first two columns of the tables of a text, where the
// names stand; kinds of Kubernetes may be named in the others.
func firstColumns(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			out.WriteString(cells[1] + cells[2] + "\n")
		}
	}
	return out.String()
}

// sectionOf returns a page's text under a heading of the second level.
func sectionOf(t *testing.T, page, title string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n## "+title+"\n")
	if !found {
		t.Fatalf("no heading %q", title)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}
