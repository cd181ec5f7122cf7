// Pin replaces the tags of images in the YAML files of folders by digests:
//
//	go run ./hack/pin DIGESTS FOLDER...
//
// Each line of DIGESTS is an image with its tag and its digest, as in
//
//	ghcr.io/bergctf/berg-operator:v0.1.0 sha256:…
//
// A chart gets the digests as values. A bundle all of whose images have digests says that it can be installed in a cluster without
// internet: a mirror knows images by their digests alone.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pin DIGESTS FOLDER...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pin:", err)
		os.Exit(1)
	}
}

func run(list string, folders []string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	images, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	used := map[string]bool{}
	for _, folder := range folders {
		if err := pinFolder(folder, images, used); err != nil {
			return err
		}
	}
	for _, i := range images {
		if !used[i.tagged()] {
			return fmt.Errorf("%s: no file names %s", list, i.tagged())
		}
	}
	return nil
}

// pinFolder pins the images in all manifests of a folder.
func pinFolder(folder string, images []image, used map[string]bool) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		before, err := root.ReadFile(path)
		if err != nil {
			return err
		}
		return root.WriteFile(path, []byte(pinned(string(before), images, used)), 0o644)
	})
}

type image struct{ repository, tag, digest string }

func (i image) tagged() string { return i.repository + ":" + i.tag }

var line = regexp.MustCompile(`^([^\s@]+):([\w.-]+) (sha256:[0-9a-f]{64})$`)

func parse(list string) ([]image, error) {
	var images []image
	for text := range strings.Lines(list) {
		m := line.FindStringSubmatch(strings.TrimSpace(text))
		if m == nil {
			return nil, fmt.Errorf("%q: want an image with its tag, a space and sha256:…", strings.TrimSpace(text))
		}
		images = append(images, image{m[1], m[2], m[3]})
	}
	return images, nil
}

const (
	disconnected = "features.operators.openshift.io/disconnected: "
	relatedField = "relatedImages"
)

// pinned returns the text of a file with digests, and notes the images that it names.
func pinned(text string, images []image, used map[string]bool) string {
	for _, i := range images {
		// The next character would make it another tag.
		name := regexp.MustCompile(regexp.QuoteMeta(i.tagged()) + `($|[^\w.@-])`)
		if name.MatchString(text) {
			used[i.tagged()] = true
			text = name.ReplaceAllString(text, i.repository+"@"+i.digest+"$1")
		}
		value := regexp.MustCompile(`(repository: ` + regexp.QuoteMeta(i.repository) + `\n(?:.*\n){0,4}? +digest: )""`)
		if value.MatchString(text) {
			used[i.tagged()] = true
			text = value.ReplaceAllString(text, `${1}"`+i.digest+`"`)
		}
	}
	if !strings.Contains(text, disconnected) {
		return text
	}
	related := relatedImages(text)
	if len(related) > 0 && !slices.ContainsFunc(related, func(name string) bool { return !strings.Contains(name, "@sha256:") }) {
		text = strings.ReplaceAll(text, disconnected+`"false"`, disconnected+`"true"`)
	}
	return text
}

// relatedImages returns the images that the documents of a file list, for mirrors.
func relatedImages(text string) (names []string) {
	inside := false
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "- "), ":")
		inside = key == relatedField || inside && (key == "image" || key == "name")
		if inside && key == "image" {
			names = append(names, strings.TrimSpace(value))
		}
	}
	return names
}
