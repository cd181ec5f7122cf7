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

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	var csv operatorsv1alpha1.ClusterServiceVersion
	if err := yaml.UnmarshalStrict(text, &csv); err != nil {
		return nil, err
	}
	owned := csv.Spec.CustomResourceDefinitions.Owned
	if err := sortKinds(owned, kinds, func(d operatorsv1alpha1.CRDDescription) string { return d.Kind }); err != nil {
		return nil, err
	}
	for _, kind := range owned {
		for i, d := range kind.SpecDescriptors {
			if strings.HasSuffix(d.Path, "ecretRef.name") {
				kind.SpecDescriptors[i].XDescriptors = []string{choice}
			}
		}
	}
	var all []map[string]any
	if err := json.Unmarshal([]byte(csv.Annotations[examples]), &all); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", examples, err)
	}
	kind := func(example map[string]any) string { name, _ := example["kind"].(string); return name }
	if err := sortKinds(all, kinds, kind); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", examples, err)
	}
	var written bytes.Buffer
	encoder := json.NewEncoder(&written)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return nil, err
	}
	csv.Annotations[examples] = string(bytes.TrimSuffix(written.Bytes(), []byte("\n")))
	return marshal(csv)
}

// marshal leaves out what OLM writes: the status, and the defaults of fields that the type always has.
func marshal(csv operatorsv1alpha1.ClusterServiceVersion) ([]byte, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&csv)
	if err != nil {
		return nil, err
	}
	delete(object, "status")
	for _, path := range [][]string{{"spec", "cleanup"}, {"metadata", "creationTimestamp"}} {
		unstructured.RemoveNestedField(object, path...)
	}
	return yaml.Marshal(object)
}

func sortKinds[T any](list []T, kinds []string, find func(T) string) error {
	for _, item := range list {
		if !slices.Contains(kinds, find(item)) {
			return fmt.Errorf("the order %q lacks the kind %q", kinds, find(item))
		}
	}
	slices.SortStableFunc(list, func(a, b T) int { return slices.Index(kinds, find(a)) - slices.Index(kinds, find(b)) })
	return nil
}
