// Command release prepares the tree for the next version: "make next-version
// VERSION=0.2.0", after the present version was published.
//
// It sets the version, also where a module requires the module in api, adds it to
// the catalog as an upgrade from every earlier one, and stores the published CRDs,
// with which later ones are compared. make then generates the rest.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/blang/semver/v4"
)

const (
	versionsFile = "hack/versions.mk"
	templates    = "catalog/templates"  // a file for each package
	crdFiles     = "config/*/crd/bases" // of each family
	published    = "catalog/crds"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: release VERSION")
		os.Exit(2)
	}
	if err := release(".", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var versionLine = regexp.MustCompile(`(?m)^VERSION \?= (\S+)$`)

// apiLine is where a module requires the module in api, which has the version of the tree.
var apiLine = regexp.MustCompile(`(?m)^(\s+github\.com/bergctf/berg-operator/api) v\S+`)

// modules are the files that may have an apiLine.
var modules = []string{"go.mod", "test/*/*/go.mod"}

// release changes the tree in root from its version to next. It validates
// everything before it writes.
func release(root, next string) error {
	versions, err := os.ReadFile(filepath.Join(root, versionsFile))
	if err != nil {
		return err
	}
	found := versionLine.FindSubmatch(versions)
	if found == nil {
		return fmt.Errorf("%s has no line VERSION ?=", versionsFile)
	}
	current, err := semver.Parse(string(found[1]))
	if err != nil {
		return fmt.Errorf("%s: VERSION %w", versionsFile, err)
	}
	version, err := semver.Parse(next)
	// Build metadata has no order, and is not allowed in the tag of an image.
	if err != nil || len(version.Build) > 0 {
		return fmt.Errorf("%q: must be a version such as 0.2.0 or 0.2.0-rc.1", next)
	}
	if version.LE(current) {
		return fmt.Errorf("%s must be higher than the present version %s", version, current)
	}
	if version.Major > 1 {
		return fmt.Errorf("%s: Go wants modules of that version to end in /v%d: rename this module and the one in api first", version, version.Major)
	}
	changed, err := requireAPI(root, version)
	if err != nil {
		return err
	}

	files, err := filepath.Glob(filepath.Join(root, templates, "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no files", templates)
	}
	for _, file := range files {
		template, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if changed[file], err = offer(string(template), strings.TrimSuffix(filepath.Base(file), ".yaml"), version); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}

	if err := storeCRDs(root, current.String()); err != nil {
		return err
	}
	for file, text := range changed {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
	}
	versions = versionLine.ReplaceAll(versions, []byte("VERSION ?= "+version.String()))
	return os.WriteFile(filepath.Join(root, versionsFile), versions, 0o600)
}

// requireAPI returns the go.mod files that require the module in api, with its next version, by path.
func requireAPI(root string, next semver.Version) (map[string]string, error) {
	changed := map[string]string{}
	for _, pattern := range modules {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if apiLine.Match(text) {
				changed[file] = apiLine.ReplaceAllString(string(text), "${1} v"+next.String())
			}
		}
	}
	if len(changed) == 0 {
		return nil, fmt.Errorf("no go.mod of %s requires the module in api", strings.Join(modules, ", "))
	}
	return changed, nil
}

// storeCRDs copies the CRDs of the published version. The first ones replace the
// baseline.
func storeCRDs(root, current string) error {
	files, err := filepath.Glob(filepath.Join(root, crdFiles, "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no files", crdFiles)
	}
	target := filepath.Join(root, published, "v"+current)
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(target, filepath.Base(file)), text, 0o600); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(root, published, "baseline"))
}

// Patterns of a channel of the template.
var (
	channelStart = "- schema: olm.channel"
	channelName  = regexp.MustCompile(`^  name: (\S+)$`)
)

// offer adds a version of a package to the end of each channel: a final version to all, a
// pre-release to candidate only. It replaces the last version of the channel,
// and is an upgrade from every earlier one.
func offer(template, packageName string, next semver.Version) (string, error) {
	entryName := regexp.MustCompile(`^  - name: ` + regexp.QuoteMeta(packageName) + `\.v(\S+)$`)
	lines := strings.Split(strings.TrimRight(template, "\n"), "\n")
	var out []string
	added := 0
	channel, first, last := "", "", ""
	finish := func() error {
		if channel == "" || (len(next.Pre) > 0 && channel != "candidate") {
			return nil
		}
		if last == "" {
			return fmt.Errorf("channel %s needs an entry of the form \"- name: %s.v0.1.0\"", channel, packageName)
		}
		if newest, err := semver.Parse(last); err != nil || next.LE(newest) {
			return fmt.Errorf("channel %s already has %s", channel, last)
		}
		out = append(out,
			"  - name: "+packageName+".v"+next.String(),
			"    replaces: "+packageName+".v"+last,
			fmt.Sprintf("    skipRange: '>=%s <%s'", first, next))
		added++
		return nil
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "- ") {
			if err := finish(); err != nil {
				return "", err
			}
			channel, first, last = "", "", ""
			if line == channelStart {
				channel = "?"
			}
		}
		if m := channelName.FindStringSubmatch(line); m != nil && channel == "?" {
			channel = m[1]
		}
		if m := entryName.FindStringSubmatch(line); m != nil {
			if first == "" {
				first = m[1]
			}
			last = m[1]
		}
		out = append(out, line)
	}
	if err := finish(); err != nil {
		return "", err
	}
	if added == 0 {
		return "", fmt.Errorf("no channel for %s found", next)
	}
	return strings.Join(out, "\n") + "\n", nil
}
