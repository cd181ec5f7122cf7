package olm

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// clusterScoped returns every object that is in no namespace, as
// "resource.group/name", of all kinds that the API server knows.
func (c *cluster) clusterScoped(ctx context.Context) (sets.Set[string], error) {
	lists, err := c.discovery.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	all := sets.New[string]()
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			// ComponentStatus holds nothing, and warns at each look that it is deprecated.
			if resource.Namespaced || resource.Kind == "ComponentStatus" || !slices.Contains(resource.Verbs, "list") {
				continue
			}
			objects, err := c.metadata.Resource(group.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", resource.Name, err)
			}
			for _, object := range objects.Items {
				all.Insert(fmt.Sprintf("%s/%s", group.WithResource(resource.Name).GroupResource(), object.Name))
			}
		}
	}
	return all, nil
}

// leftBehind is nil when nothing has come to what was there before, but for what
// is expected to.
func leftBehind(ctx context.Context, before sets.Set[string], expected func(string) bool) error {
	after, err := world.clusterScoped(ctx)
	if err != nil {
		return err
	}
	if rest := slices.DeleteFunc(sets.List(after.Difference(before)), expected); len(rest) > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(rest, ", "))
	}
	return nil
}

// definitions are the names of the kinds that the bundle brings: those of every family, in
// files that are called <group>_<plural>.yaml.
func definitions() []string {
	GinkgoHelper()
	files, err := filepath.Glob("../../../config/*/crd/bases/*.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	for n, file := range files {
		group, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		files[n] = plural + "." + group
	}
	return files
}

// promised is what OLM keeps on purpose: the definitions, since with them every
// Challenge would go, and what the API server notes of them; the roles that OLM
// makes for them; and its own record.
func promised(object string) bool {
	if object == "operators.operators.coreos.com/"+packageName+"."+operatorNamespace {
		return true
	}
	return slices.ContainsFunc(definitions(), func(name string) bool {
		_, group, _ := strings.Cut(name, ".")
		return object == "customresourcedefinitions.apiextensions.k8s.io/"+name ||
			strings.HasPrefix(object, "apiservices.apiregistration.k8s.io/") && strings.HasSuffix(object, "."+group) ||
			strings.HasPrefix(object, "clusterroles.rbac.authorization.k8s.io/"+name+"-v1")
	})
}

func nothing(string) bool { return false }
