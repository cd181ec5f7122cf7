// Command csv puts the kinds of a ClusterServiceVersion and its examples in order, the most important first: a console shows
// them so, and operator-sdk sorts them by their names. It also marks the names of Secrets, which a console then offers for choice:
// their type is that of references to other objects too, so no marker can say it.
//
//	go run ./hack/csv FILE KIND...
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: csv FILE KIND...")
		os.Exit(2)
	}
	file := os.Args[1]
	text, err := os.ReadFile(file)
	if err == nil {
		text, err = finished(text, os.Args[2:])
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "csv: %s: %v\n", file, err)
		os.Exit(1)
	}
}

const examples = "alm-examples"

// choice is what a console knows the name of a Secret by.
const choice = "urn:alm:descriptor:io.kubernetes:Secret"

// finished returns a ClusterServiceVersion with its kinds and examples in the order of kinds, which must name each owned kind,
// and with its Secrets marked.
func finished(text []byte, kinds []string) ([]byte, error) {
	var csv map[string]any
	if err := yaml.Unmarshal(text, &csv); err != nil {
		return nil, err
	}
	owned, _ := child(csv, "spec", "customresourcedefinitions")["owned"].([]any)
	if err := sortKinds(owned, kinds); err != nil {
		return nil, err
	}
	for _, item := range owned {
		kind, _ := item.(map[string]any)
		descriptors, _ := kind["specDescriptors"].([]any)
		for _, d := range descriptors {
			descriptor, _ := d.(map[string]any)
			if path, _ := descriptor["path"].(string); strings.HasSuffix(path, "ecretRef.name") {
				descriptor["x-descriptors"] = []any{choice}
			}
		}
	}
	annotations := child(csv, "metadata", "annotations")
	shown, _ := annotations[examples].(string)
	var all []any
	if err := json.Unmarshal([]byte(shown), &all); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", examples, err)
	}
	if err := sortKinds(all, kinds); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", examples, err)
	}
	var written bytes.Buffer
	encoder := json.NewEncoder(&written)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return nil, err
	}
	annotations[examples] = string(bytes.TrimSuffix(written.Bytes(), []byte("\n")))
	return yaml.Marshal(csv)
}

func child(object map[string]any, path ...string) map[string]any {
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}
	return object
}

func sortKinds(list []any, kinds []string) error {
	rank := func(item any) int {
		object, _ := item.(map[string]any)
		kind, _ := object["kind"].(string)
		return slices.Index(kinds, kind)
	}
	for _, item := range list {
		if rank(item) < 0 {
			return fmt.Errorf("the order %q lacks the kind of %.80v", kinds, item)
		}
	}
	slices.SortStableFunc(list, func(a, b any) int { return rank(a) - rank(b) })
	return nil
}
