package importer

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

// references are the files that compose-go opens by itself, for extends and include. It resolves their names against
// different folders, so that each name counts in each folder.
type references struct {
	loader  *composeLoader
	names   []string
	folders []string
	read    map[string]bool
}

// checkReferences returns why a file that extends or include name must not be read.
func (l *composeLoader) checkReferences(details types.ConfigDetails) error {
	r := references{loader: l, folders: []string{l.folder}, read: map[string]bool{}}
	for _, file := range details.ConfigFiles {
		if err := r.collect(file.Content, func(name string) (string, error) { return l.substitute(name, l.lookup) }); err != nil {
			return fmt.Errorf("%s: %w", file.Filename, err)
		}
	}
	for known := -1; known != len(r.names)+len(r.folders); { // each file may name others
		known = len(r.names) + len(r.folders)
		for _, folder := range slices.Clone(r.folders) {
			for _, name := range slices.Concat(r.names, []string{".env"}) {
				if !filepath.IsAbs(name) {
					name = filepath.Join(folder, name)
				}
				if err := r.open(name); err != nil {
					return fmt.Errorf("%s %w", name, err)
				}
			}
		}
	}
	return nil
}

// open reads a file that exists, and remembers a folder.
func (r *references) open(name string) error {
	name = filepath.Clean(name)
	if r.read[name] {
		return nil
	}
	r.read[name] = true
	info, err := r.loader.result.files.Stat(name)
	switch {
	case errors.Is(err, localfile.ErrRefused):
		return err
	case err != nil:
		return nil //nolint:nilerr // compose-go does not find it either
	case info.IsDir():
		r.folders = append(r.folders, name)
		return nil
	}
	content, err := r.loader.result.files.Read(name)
	if err != nil {
		return err
	}
	r.folders = append(r.folders, filepath.Dir(name))
	r.read[filepath.Dir(name)] = true
	if filepath.Base(name) == ".env" {
		return nil
	}
	return r.collect(content, func(name string) (string, error) {
		if strings.Contains(name, "$") {
			return "", fmt.Errorf("%w: its name %s has a variable", localfile.ErrRefused, name)
		}
		return name, nil
	})
}

// collect finds the names in a file.
func (r *references) collect(content []byte, substitute func(string) (string, error)) error {
	decoder := yamlv3.NewDecoder(bytes.NewReader(content))
	for {
		var document yamlv3.Node
		if err := decoder.Decode(&document); err != nil {
			return nil //nolint:nilerr // the end, or compose-go refuses it in its words
		}
		if err := yamlnode.Check(&document); err != nil {
			return err
		}
		if err := r.walk(&document, false, substitute); err != nil {
			return err
		}
	}
}

// walk adds each text below extends and include.
func (r *references) walk(node *yamlv3.Node, within bool, substitute func(string) (string, error)) error {
	if node.Kind == yamlv3.AliasNode && within {
		node = yamlnode.Target(node)
	}
	if node.Tag == "!!binary" {
		return fmt.Errorf("%w: line %d has a binary value, which may be a name", localfile.ErrRefused, node.Line)
	}
	if node.Kind == yamlv3.ScalarNode && within {
		name, err := substitute(node.Value)
		if err == nil && name != "" && !slices.Contains(r.names, name) {
			r.names = append(r.names, name)
		}
		return err
	}
	for i, child := range node.Content {
		below := within
		if node.Kind == yamlv3.MappingNode && i%2 == 1 {
			below = within || slices.Contains([]string{"extends", "include"}, yamlnode.Target(node.Content[i-1]).Value)
		}
		if err := r.walk(child, below, substitute); err != nil {
			return err
		}
	}
	return nil
}
