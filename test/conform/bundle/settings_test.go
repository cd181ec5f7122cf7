package bundle

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// variables returns the variables of a Deployment that have values.
func variables(spec appsv1.DeploymentSpec) map[string]string {
	values := map[string]string{}
	for _, v := range spec.Template.Spec.Containers[0].Env {
		if v.ValueFrom == nil {
			values[v.Name] = v.Value
		}
	}
	return values
}

// fileVariables returns the variables of the Deployments that the files of deploy/ install, by name.
func fileVariables(t *testing.T, names ...string) map[string]map[string]string {
	t.Helper()
	found := map[string]map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, "deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			var d appsv1.Deployment
			err := decoder.Decode(&d)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if d.Kind == "Deployment" {
				found[d.Name] = variables(d.Spec)
			}
		}
	}
	return found
}

// different are the variables that an installer needs of its own. The files turn on what a Subscription turns on by a setting.
var different = []string{"ENABLED_APIS", "LEASE_NAME", "OPERATOR_CONDITION_NAME", "PLATFORM_API", "GATE_ENABLED"}

// The same settings have the same values, however a program was installed: by OLM v0 and OLM v1, which install the bundles, by the files,
// and by the chart, which test/conform/chart compares with the files. berg-operator has every setting of the file.
func TestBundlesHaveTheSettingsOfTheFiles(t *testing.T) {
	files := fileVariables(t, "install.yaml", "platform-api.yaml", "gate.yaml")
	for _, name := range []string{"berg-operator-controller-manager", "berg-api", "berg-gate"} {
		if files[name] == nil {
			t.Fatalf("no file has the Deployment %s, only %q", name, slices.Sorted(maps.Keys(files)))
		}
	}
	packages, err := filepath.Glob(filepath.Join(root, "deploy/packages/*/bundle/manifests/*.clusterserviceversion.yaml"))
	if err != nil || len(packages) != 4 {
		t.Fatalf("the other packages are %q: %v", packages, err)
	}
	for _, file := range append(packages, filepath.Join(root, "bundle/manifests/berg-operator.clusterserviceversion.yaml")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var csv operatorsv1alpha1.ClusterServiceVersion
		if err := yaml.Unmarshal(text, &csv); err != nil {
			t.Fatal(err)
		}
		whole := strings.HasPrefix(csv.Name, "berg-operator.")
		for _, d := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
			want := files[d.Name]
			switch {
			case strings.HasSuffix(d.Name, "-installer"):
				continue
			case want == nil && strings.HasSuffix(d.Name, "-controller-manager"):
				want = files["berg-operator-controller-manager"]
			}
			t.Run(d.Name, func(t *testing.T) { compareSettings(t, variables(d.Spec), want, whole) })
		}
	}
}

// compareSettings compares the variables of a bundle with those of a file. Another package has settings of its own, and lacks those of Berg.
func compareSettings(t *testing.T, got, want map[string]string, whole bool) {
	t.Helper()
	common := 0
	for name, value := range got {
		if slices.Contains(different, name) || strings.HasPrefix(name, "RELATED_IMAGE_") {
			continue
		}
		other, found := want[name]
		if found {
			common++
		}
		if (found || whole) && (!found || other != value) {
			t.Errorf("%s is %q in the bundle, and %q in the file, where it is set: %t", name, value, other, found)
		}
	}
	for name := range want {
		if _, found := got[name]; whole && !found && !slices.Contains(different, name) {
			t.Errorf("%s of the file is missing in the bundle", name)
		}
	}
	if common == 0 && len(want) > 1 {
		t.Error("no setting was compared")
	}
}
