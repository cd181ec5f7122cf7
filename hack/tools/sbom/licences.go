package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
	"golang.org/x/mod/module"
)

// folders are where licences are.
type folders struct {
	// own is the file with the licence of the programs, goroot the folder of Go, cache the folder of modules.
	own, goroot, cache string
}

func findFolders(own string) (folders, error) {
	output, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	lines := strings.Fields(string(output))
	if err != nil || len(lines) != 2 {
		return folders{}, fmt.Errorf("find the folders of Go: %q %w", output, err)
	}
	return folders{own, lines[0], lines[1]}, nil
}

// find returns the folder of a module that was downloaded to build the program.
func (f folders) find(m *debug.Module) (string, error) {
	path, err := module.EscapePath(m.Path)
	if err != nil {
		return "", err
	}
	version, err := module.EscapeVersion(m.Version)
	return filepath.Join(f.cache, filepath.FromSlash(path)+"@"+version), err
}

// licenceName matches the files that a licence may ask for next to a program.
var licenceName = regexp.MustCompile(`(?i)^((un)?licen[sc]e|copying|copyright|notice|patents)([-._].*)?$`)

// sources are not texts of licences, although they may be named so.
var sources = regexp.MustCompile(`\.(go|s|c|h|py|js|sh|json|yaml|yml|tmpl|tpl|html)$`)

// skipped are folders of a module that are not linked.
var skipped = []string{"testdata", "vendor", "node_modules", ".git", ".github"}

// readLicences returns the licences of the file, or of the files at the root of a folder, and all texts with notices in it.
func readLicences(root string) (*cdx.Licenses, []string, error) {
	var ids, texts []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(skipped, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || path != root && (!licenceName.MatchString(entry.Name()) || sources.MatchString(entry.Name())):
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // a downloaded module, or a file of this repository
		if err != nil {
			return err
		}
		texts = append(texts, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
		if grants := !strings.HasPrefix(strings.ToUpper(entry.Name()), "PATENTS"); grants && (path == root || filepath.Dir(path) == root) {
			for _, match := range licensecheck.Scan(text).Match {
				if !slices.Contains(ids, match.ID) {
					ids = append(ids, match.ID)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if len(ids) == 0 {
		return nil, nil, errors.New("it has no licence that is known: look at it, and leave the module out if it has none")
	}
	licences := make(cdx.Licenses, len(ids))
	for i, id := range ids {
		licences[i] = cdx.LicenseChoice{License: &cdx.License{ID: id}}
	}
	return &licences, texts, nil
}

// notices are the modules by text: many have the same one.
type notices map[string][]string

func (n notices) add(name string, texts []string) {
	for _, text := range texts {
		if !slices.Contains(n[text], name) {
			n[text] = append(n[text], name)
		}
	}
}

// String has each text once, under the names of its modules.
func (n notices) String() string {
	var parts []string
	for text, names := range n {
		parts = append(parts, strings.Join(names, "\n")+"\n\n"+text+"\n")
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n"+strings.Repeat("-", 80)+"\n\n")
}
