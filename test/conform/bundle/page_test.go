package bundle

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

type named struct {
	Name string `json:"name"`
}

// catalog and extension are the fields of OLM v1 that are used here, by its API reference.
type catalog struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   named  `json:"metadata"`
	Spec       struct {
		Source struct {
			Type  string `json:"type"`
			Image struct {
				Ref string `json:"ref"`
			} `json:"image"`
		} `json:"source"`
	} `json:"spec"`
}

type extension struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   named  `json:"metadata"`
	Spec       struct {
		Namespace      string `json:"namespace"`
		ServiceAccount named  `json:"serviceAccount"`
		Source         struct {
			SourceType string `json:"sourceType"`
			Catalog    struct {
				PackageName string   `json:"packageName"`
				Channels    []string `json:"channels"`
			} `json:"catalog"`
		} `json:"source"`
	} `json:"spec"`
}

// parse returns the objects of a YAML text by their kinds.
func parse(t *testing.T, text string) map[string]string {
	t.Helper()
	objects := map[string]string{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		objects[o.GetKind()] = document
	}
	return objects
}

// checkOLMv1 returns the two objects of OLM v1, which have known fields only.
func checkOLMv1(t *testing.T, objects map[string]string, packageName string) (catalog, extension) {
	t.Helper()
	var c catalog
	var e extension
	if err := yaml.UnmarshalStrict([]byte(objects["ClusterCatalog"]), &c); err != nil || c.APIVersion != "olm.operatorframework.io/v1" || c.Spec.Source.Type != "Image" {
		t.Errorf("%s: the catalog is %+v: %v", packageName, c, err)
	}
	if err := yaml.UnmarshalStrict([]byte(objects["ClusterExtension"]), &e); err != nil || e.APIVersion != "olm.operatorframework.io/v1" ||
		e.Spec.Source.SourceType != "Catalog" || e.Spec.Source.Catalog.PackageName != packageName || e.Spec.Namespace != packageName+"-system" {
		t.Errorf("%s: the extension is %+v: %v", packageName, e, err)
	}
	return c, e
}

func TestPageShowsTheFiles(t *testing.T) {
	var shownCatalog catalog
	var shownExtension extension
	page, err := os.ReadFile(filepath.Join(root, "docs", "olm-v1.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, block := range regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```\n").FindAllStringSubmatch(string(page), -1) {
		objects := parse(t, block[1])
		blocks++
		if text, there := objects["ConfigMap"]; there {
			var o struct {
				Metadata named             `json:"metadata"`
				Data     map[string]string `json:"data"`
			}
			if err := yaml.Unmarshal([]byte(text), &o); err != nil || o.Metadata.Name != settings.ConfigMap || len(o.Data) == 0 {
				t.Errorf("the ConfigMap is %+v: %v", o, err)
			}
			if err := settings.CheckNames(o.Data); err != nil {
				t.Error(err)
			}
			continue
		}
		shownCatalog, shownExtension = checkOLMv1(t, objects, "berg-operator")
	}
	if blocks != 2 {
		t.Errorf("%d blocks, want two", blocks)
	}
	files, err := filepath.Glob(filepath.Join(root, "config", "olm", "v1", "*.yaml"))
	if err != nil || len(files) != 5 {
		t.Fatalf("%q: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		c, e := checkOLMv1(t, parse(t, string(text)), name)
		if name == "berg-operator" && (c != shownCatalog || !reflect.DeepEqual(e, shownExtension)) {
			t.Errorf("the page shows other objects than %s", file)
		}
		if !strings.Contains(string(page), "config/olm/v1/"+filepath.Base(file)) {
			t.Errorf("the page does not name %s", file)
		}
	}
	dockerfile, err := os.ReadFile(filepath.Join(root, "catalog", "Dockerfile"))
	if err != nil || !strings.Contains(string(dockerfile), "LABEL operators.operatorframework.io.index.configs.v1=/configs\n") {
		t.Errorf("catalogd finds no catalog in the image without its label: %v", err)
	}
}
