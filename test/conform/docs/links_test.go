package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	code    = regexp.MustCompile("(?s)```.*?```")
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// pages returns every Markdown file that is written by hand.
func pages(t *testing.T) []string {
	t.Helper()
	out := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "config/README.md"}
	for _, dir := range []string{"docs", "test"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") && d.Name() != "api.md" {
				out = append(out, strings.TrimPrefix(filepath.ToSlash(path), root+"/"))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// conflict is what a merge leaves in a file that it could not merge.
var conflict = regexp.MustCompile(`(?m)^(<{7}|={7}|>{7})( |$)`)

func TestPagesHaveNoMergeConflicts(t *testing.T) {
	for _, page := range pages(t) {
		if at := conflict.FindString(string(read(t, page))); at != "" {
			t.Errorf("%s has %q, which a merge left there", page, at)
		}
	}
}

// joined is a line of a table that a program has joined with others.
var joined = regexp.MustCompile(`(?m)^.*[^-:| \n].*\| -{3,} \|.*$`)

func TestTablesHaveARowALine(t *testing.T) {
	for _, page := range pages(t) {
		if line := joined.FindString(code.ReplaceAllString(string(read(t, page)), "")); line != "" {
			t.Errorf("%s: rows of a table are in one line: %q", page, line)
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(read(t, page)), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(page), file)
			if file == "" {
				target = page
			}
			info, err := os.Stat(filepath.Join(root, target))
			if err != nil {
				t.Errorf("%s: %s does not exist", page, m[1])
				continue
			}
			if anchor != "" && !info.IsDir() && !hasAnchor(string(read(t, target)), anchor) {
				t.Errorf("%s: %s has no heading #%s", page, target, anchor)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d links found", checked)
	}
}

// hasAnchor reports whether a heading of a page gets an anchor, by the rules of
// GitHub.
func hasAnchor(page, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(code.ReplaceAllString(page, ""), -1) {
		slug := strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if slug == anchor {
			return true
		}
	}
	return false
}

// A folder has an index of its own, which the one of docs names.
func TestEveryPageOfDocsIsInTheIndex(t *testing.T) {
	for _, page := range slices.Concat(glob(t, "docs/*.md"), glob(t, "docs/*/*.md")) {
		folder, name := filepath.Split(page)
		index := folder + "README.md"
		if name == "README.md" {
			if folder == "docs/" {
				continue
			}
			index, name = "docs/README.md", filepath.Base(folder)+"/"+name
		}
		if !strings.Contains(string(read(t, index)), "]("+name+")") {
			t.Errorf("%s does not name %s", index, name)
		}
	}
}
