// Command manifests renders the chart of the Operator Lifecycle Manager as this cluster installs it:
//
//	manifests --chart DIR --version VERSION --olm-image REF --opm-image REF --output DIR
//
// It writes crds/*.yaml, one CustomResourceDefinition in each, and olm.yaml with everything else in the
// order in which it can be applied.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

func main() {
	var (
		dir     = flag.String("chart", "", "directory of the chart")
		version = flag.String("version", "", "version that OLM's own ClusterServiceVersion carries")
		olm     = flag.String("olm-image", "", "image of OLM's programs")
		opm     = flag.String("opm-image", "", "image of opm")
		output  = flag.String("output", "", "directory to write to")
	)
	flag.Parse()
	if err := run(*dir, strings.TrimPrefix(*version, "v"), *olm, *opm, *output); err != nil {
		fmt.Fprintf(os.Stderr, "manifests: %v\n", err)
		os.Exit(1)
	}
}

func run(dir, version, olmImage, opmImage, output string) error {
	source, err := loader.LoadDir(dir)
	if err != nil {
		return fmt.Errorf("load the chart: %w", err)
	}
	source.Metadata.Version = version
	values, err := chartutil.ToRenderValues(source, settings(olmImage, opmImage), chartutil.ReleaseOptions{Name: "olm"}, nil)
	if err != nil {
		return fmt.Errorf("values of the chart: %w", err)
	}
	rendered, err := engine.Render(source, values)
	if err != nil {
		return fmt.Errorf("render the chart: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(output, "crds"), 0o755); err != nil {
		return err
	}
	if err := writeDefinitions(source, filepath.Join(output, "crds")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(output, "olm.yaml"), join(rendered), 0o644)
}

// settings are OLM's own for clusters that are not OpenShift, with three differences: our images, no catalog
// that would have to be fetched, and one packageserver, since there is one node.
func settings(olmImage, opmImage string) map[string]any {
	image := map[string]any{"ref": olmImage, "pullPolicy": "IfNotPresent"}
	return map[string]any{
		"installType":            "",
		"namespace":              "olm",
		"catalog_namespace":      "olm",
		"operator_namespace":     "operators",
		"namespace_psa":          map[string]any{"enforceLevel": "restricted", "enforceVersion": "latest"},
		"operator_namespace_psa": map[string]any{"enforceLevel": "baseline", "enforceVersion": "latest"},
		"olm":                    map[string]any{"image": image},
		"catalog":                map[string]any{"image": image, "opmImageArgs": "--opmImage=" + opmImage, "commandArgs": ""},
		"package":                map[string]any{"image": image, "replicaCount": 1},
	}
}

func writeDefinitions(source *chart.Chart, dir string) error {
	definitions := source.CRDObjects()
	if len(definitions) == 0 {
		return errors.New("the chart holds no CustomResourceDefinition")
	}
	for _, d := range definitions {
		if err := os.WriteFile(filepath.Join(dir, path.Base(d.Filename)), d.File.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// join puts the rendered templates into one stream by their names, which begin with a number for that.
func join(rendered map[string]string) []byte {
	var all bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if path.Ext(name) == ".yaml" && !strings.HasPrefix(path.Base(name), "_") && strings.TrimSpace(rendered[name]) != "" {
			fmt.Fprintf(&all, "---\n%s\n", strings.TrimSpace(rendered[name]))
		}
	}
	return all.Bytes()
}
