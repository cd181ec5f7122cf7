// Chart writes what installs the operator without a clone of this repository, from config/ and
// from the tables of settings: one file to apply, and a Helm chart whose defaults install what
// that file installs. Nothing of either is written by hand but the chart's text around it, in
// static/. A family that comes to config/ is in both.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

func main() {
	kustomize := flag.String("kustomize", "", "the program kustomize")
	source := flag.String("config", "config", "folder of the kustomize sources")
	version := flag.String("version", "", "version without its v, as in 0.1.0")
	output := flag.String("output", "", "folder to write to")
	flag.Parse()
	if err := run(*kustomize, *source, *version, *output); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(kustomize, source, version, output string) error {
	if kustomize == "" || version == "" || output == "" {
		return errors.New("--kustomize, --version and --output must be set")
	}
	all, err := read(kustomize, source)
	if err != nil {
		return err
	}
	files, err := chart(all, version)
	if err != nil {
		return err
	}
	folder := filepath.Join(output, "helm", name)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for path, text := range files {
		if err := write(filepath.Join(folder, path), text); err != nil {
			return err
		}
	}
	return write(filepath.Join(output, "install.yaml"), installer(version)+string(all.text))
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // it is published
}

func installer(version string) string {
	return "# berg-operator " + version + ", with every family of config/. Written by `make chart`.\n#\n" +
		"#   kubectl apply --server-side -f install.yaml\n---\n"
}

// sources is what config/ gives.
type sources struct {
	// text installs everything, and full are its objects.
	text []byte
	full objects
	// base are the objects of the operator without a family.
	base objects
	// families are those of config/default, in the order in which the program lists them.
	families []familySource
	// prometheus is for clusters with the Prometheus operator.
	prometheus objects
	// process are the settings of the operator itself.
	process settings.Section
}

// familySource is a family of APIs, as config/ and the program know it.
type familySource struct {
	// name is its folder in config/.
	name string
	// api is its group.
	api string
	// objects are those of an operator with this family alone.
	objects objects
	// rules are the names of its alerts in the folder of the family.
	rules objects
	// apart are the rights, by Kind, that only some installations want.
	optionalRights map[string]objects
	settings       settings.Section
}

// objects are by kind, namespace and name.
type objects map[string]map[string]any

func read(kustomize, source string) (sources, error) {
	var all sources
	var err error
	build := func(folder string) (text []byte, built objects, err error) {
		command := exec.Command(kustomize, "build", folder)
		var problem bytes.Buffer
		command.Stderr = &problem
		if text, err = command.Output(); err != nil {
			return nil, nil, fmt.Errorf("kustomize build %s: %w: %s", folder, err, problem.String())
		}
		built, err = parse(text)
		return text, built, err
	}
	if all.text, all.full, err = build(filepath.Join(source, "default")); err != nil {
		return all, err
	}
	if _, all.base, err = build(filepath.Join(source, "operator")); err != nil {
		return all, err
	}
	if _, all.prometheus, err = build(filepath.Join(source, "prometheus")); err != nil {
		return all, err
	}

	copied, err := os.MkdirTemp("", "chart-")
	if err != nil {
		return all, err
	}
	defer func() { _ = os.RemoveAll(copied) }()
	if err := os.CopyFS(filepath.Join(copied, "config"), os.DirFS(source)); err != nil {
		return all, err
	}
	components, err := componentsOf(filepath.Join(source, "default", "kustomization.yaml"))
	if err != nil {
		return all, err
	}
	ofGroup := map[string]string{} // the folder of a family
	for _, component := range components {
		groups, err := groupsOf(filepath.Join(source, component, "crd", "bases"))
		if err != nil {
			return all, err
		}
		for _, group := range groups {
			ofGroup[group] = component
		}
	}
	for _, f := range families.All() {
		folder, ok := ofGroup[f.API]
		if !ok {
			return all, fmt.Errorf("no component of %s/default has definitions of the group %s", source, f.API)
		}
		alone := filepath.Join(copied, "config", "alone-"+folder)
		if err := write(filepath.Join(alone, "kustomization.yaml"),
			"resources: [../operator]\ncomponents: [../"+folder+"]\n"); err != nil {
			return all, err
		}
		family := familySource{name: folder, api: f.API, settings: f.Settings}
		if _, family.objects, err = build(alone); err != nil {
			return all, err
		}
		if rules := filepath.Join(source, folder, "prometheus"); exists(rules) {
			if _, family.rules, err = build(rules); err != nil {
				return all, err
			}
		}
		family.optionalRights = map[string]objects{}
		folders, err := filepath.Glob(filepath.Join(source, folder, "*", "rbac"))
		if err != nil {
			return all, err
		}
		for _, rights := range folders {
			kind := filepath.Dir(rights)
			if _, family.optionalRights[filepath.Base(kind)], err = build(kind); err != nil {
				return all, err
			}
		}
		all.families = append(all.families, family)
		components = slices.DeleteFunc(components, func(c string) bool { return c == folder })
	}
	if len(components) > 0 {
		return all, fmt.Errorf("%s/default has components that are no family: %s", source, strings.Join(components, ", "))
	}
	var process config.Process
	all.process = process.Section(slices.Sorted(maps.Keys(ofGroup)))
	return all, nil
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// componentsOf lists the folders of those of a kustomization.
func componentsOf(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var kustomization struct{ Components []string }
	if err := yaml.Unmarshal(data, &kustomization); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i, c := range kustomization.Components {
		kustomization.Components[i] = filepath.Base(c)
	}
	return kustomization.Components, nil
}

// groupsOf lists those of the definitions in a folder.
func groupsOf(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var definition struct{ Spec struct{ Group string } }
		if err := yaml.Unmarshal(data, &definition); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		found[definition.Spec.Group] = true
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func parse(text []byte) (objects, error) {
	built := objects{}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, err
		}
		if len(object) > 0 {
			built[identity(object)] = object
		}
	}
	return built, nil
}

func identity(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	return fmt.Sprintf("%v/%v/%v", object["kind"], metadata["namespace"], metadata["name"])
}
