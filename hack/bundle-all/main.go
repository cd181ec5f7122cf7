// Bundle-all composes the base of a ClusterServiceVersion that owns the kinds of every package.
//
//	go run ./hack/bundle-all > config/bundle-all/berg-operator-all.clusterserviceversion.yaml
package main

import (
	"fmt"
	"os"
	"path/filepath"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"sigs.k8s.io/yaml"
)

// name is the name of the package.
const name = "berg-operator-all"

func main() {
	text, err := compose(".")
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bundle-all:", err)
		os.Exit(1)
	}
}

func compose(root string) ([]byte, error) {
	bases, err := filepath.Glob(filepath.Join(root, "config", "packages", "*", "bases", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all operatorsv1alpha1.ClusterServiceVersion
	for i, base := range append([]string{filepath.Join(root, "config", "manifests", "bases", "berg-operator.clusterserviceversion.yaml")}, bases...) {
		text, err := os.ReadFile(base)
		if err != nil {
			return nil, err
		}
		var csv operatorsv1alpha1.ClusterServiceVersion
		if err := yaml.Unmarshal(text, &csv); err != nil {
			return nil, fmt.Errorf("%s: %w", base, err)
		}
		if i == 0 {
			all = csv
			all.Name, all.Spec.DisplayName = name+".v0.0.0", "Berg, with every API"
			all.Annotations["capabilities"] = "Basic Install" // as the package with the least
			all.Spec.Description += "\n"
			continue
		}
		owned := &all.Spec.CustomResourceDefinitions.Owned
		*owned = append(*owned, csv.Spec.CustomResourceDefinitions.Owned...)
		all.Spec.Description += "\n# " + csv.Spec.DisplayName + "\n\n" + csv.Spec.Description
		all.Spec.Keywords = append(all.Spec.Keywords, csv.Spec.Keywords...)
	}
	return yaml.Marshal(all)
}
