package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// bundle is a bundle as it is unpacked.
type bundle struct {
	csv operatorsv1alpha1.ClusterServiceVersion
	// deployment is that of the operator, manager its pod.
	deployment *operatorsv1alpha1.StrategyDeploymentSpec
	manager    corev1.PodTemplateSpec
	// own are the rights in the operator's namespace that the installer binds.
	own      []rbacv1.PolicyRule
	examples []unstructured.Unstructured
	// scorecardImages are those that its tests run.
	scorecardImages []string
	// definitions of the owned kinds, by name.
	definitions map[string]*apiextensionsv1.CustomResourceDefinition
}

// load reads the bundle in dir.
func load(dir string) (bundle, error) {
	files, err := filepath.Glob(filepath.Join(dir, "manifests", "*.clusterserviceversion.yaml"))
	if err != nil {
		return bundle{}, err
	}
	if len(files) != 1 {
		return bundle{}, fmt.Errorf("%s: found %d ClusterServiceVersions instead of one", dir, len(files))
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return bundle{}, err
	}
	var b bundle
	if err := yaml.Unmarshal(text, &b.csv); err != nil {
		return bundle{}, fmt.Errorf("%s: %w", files[0], err)
	}
	for n := range b.csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		d := &b.csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[n]
		if len(d.Spec.Template.Spec.Containers) != 1 {
			return bundle{}, fmt.Errorf("the Deployment %s must have one container", d.Name)
		}
		if strings.HasSuffix(d.Name, "-controller-manager") {
			b.deployment = d
		}
	}
	if b.deployment == nil {
		return bundle{}, errors.New("the bundle must have a Deployment of the operator")
	}
	b.manager = b.deployment.Spec.Template
	if err := json.Unmarshal([]byte(b.csv.Annotations["alm-examples"]), &b.examples); err != nil {
		return bundle{}, fmt.Errorf("annotation alm-examples: %w", err)
	}
	if b.scorecardImages, err = loadScorecardImages(filepath.Join(dir, "tests", "scorecard", "config.yaml")); err != nil {
		return bundle{}, err
	}
	if b.own, err = loadOwnRole(filepath.Join(dir, "manifests", b.account()+"_rbac.authorization.k8s.io_v1_role.yaml")); err != nil {
		return bundle{}, err
	}
	b.definitions, err = loadDefinitions(filepath.Join(dir, "manifests"))
	return b, err
}

// account is the name of the operator's account, Role and PriorityClass.
func (b bundle) account() string { return b.name() + "-controller-manager" }

// loadOwnRole returns the rules of the Role that the installer binds in the operator's namespace. Some packages need none.
func loadOwnRole(file string) ([]rbacv1.PolicyRule, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var role rbacv1.Role
	if err := yaml.Unmarshal(text, &role); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return role.Rules, nil
}

func loadScorecardImages(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config v1alpha3.Configuration
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var found []string
	for _, stage := range config.Stages {
		for _, test := range stage.Tests {
			found = append(found, test.Image)
		}
	}
	return found, nil
}

func loadDefinitions(dir string) (map[string]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	found := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, definition); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if definition.Kind == "CustomResourceDefinition" {
			found[definition.Name] = definition
		}
	}
	return found, nil
}

// name is the name of the package.
func (b bundle) name() string {
	name, _, _ := strings.Cut(b.csv.Name, ".v")
	return name
}

// lease is the one that the replicas of this package compete for.
func (b bundle) lease() string { return b.name() + "." + bergv1.GroupVersion.Group }

// api is the API group of the owned kinds; empty if they are of none or of several.
func (b bundle) api() string {
	found := map[string]bool{}
	for _, d := range b.definitions {
		found[d.Spec.Group] = true
	}
	if len(found) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(found))[0]
}

// container is the operator's.
func (b bundle) container() corev1.Container {
	return b.manager.Spec.Containers[0]
}

// exampleImages are those that the examples run.
func (b bundle) exampleImages() []string {
	var found []string
	for _, e := range b.examples {
		containers, _, _ := unstructured.NestedSlice(e.Object, "spec", "containers")
		for _, c := range containers {
			if container, ok := c.(map[string]any); ok {
				image, _, _ := unstructured.NestedString(container, "image")
				found = append(found, image)
			}
		}
		for _, container := range componentContainers(e) {
			image, _, _ := unstructured.NestedString(container, "image")
			found = append(found, image)
		}
	}
	return found
}

// componentContainers are the containers of an example that consists of components, not copied.
func componentContainers(example unstructured.Unstructured) (all []map[string]any) {
	components, _, _ := unstructured.NestedFieldNoCopy(example.Object, "spec", "components")
	list, _ := components.([]any)
	for _, c := range list {
		component, _ := c.(map[string]any)
		containers, _, _ := unstructured.NestedFieldNoCopy(component, "deployment", "spec", "template", "spec", "containers")
		items, _ := containers.([]any)
		for _, item := range items {
			if container, ok := item.(map[string]any); ok {
				all = append(all, container)
			}
		}
	}
	return all
}
