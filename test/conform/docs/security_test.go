package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// proof is a name in backticks of a test: a file or folder of tests, or a function.
var proof = regexp.MustCompile("`((?:test/)[A-Za-z0-9_./-]+|[a-z0-9_]+_test\\.go|(?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`")

// docs/security.md tells reviewers which test verifies each statement.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	files, functions := testsOf(t)
	text := string(read(t, "docs/security.md"))
	named := 0
	for _, match := range proof.FindAllStringSubmatch(text, -1) {
		name := match[1]
		var ok bool
		switch {
		case strings.HasPrefix(name, "test/"):
			_, err := os.Stat(filepath.Join(root, name))
			ok = err == nil
		case strings.HasSuffix(name, ".go"):
			ok = files[name]
		default:
			ok = functions[name]
		}
		if named++; !ok {
			t.Errorf("docs/security.md names the test %s, which does not exist", name)
		}
	}
	if named < 30 {
		t.Errorf("docs/security.md names %d tests", named)
	}

	tested := false
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "| ") {
			tested = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		last := cells[len(cells)-1]
		switch {
		case last == "tested by":
			tested = true
		case tested && !strings.HasPrefix(last, "---") && !strings.HasPrefix(last, "the same") && !proof.MatchString(last):
			t.Errorf("docs/security.md names no test for: %s", cells[0])
		}
	}
}

// testsOf returns the names of all files and functions of tests.
func testsOf(t *testing.T) (files, functions map[string]bool) {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	files, functions = map[string]bool{}, map[string]bool{}
	for _, folder := range []string{"api", "cmd", "hack", "internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			files[filepath.Base(path)] = true
			for _, match := range declared.FindAllStringSubmatch(string(text), -1) {
				functions[match[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files, functions
}
