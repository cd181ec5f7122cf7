// Package residue finds what an installation leaves on a cluster once it is removed.
package residue

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// Objects returns every object that is in no namespace, as "resource.group/name", of all kinds that the API server of
// apiserver.Config knows, and every Role and RoleBinding, as "resource.group/namespace/name".
func Objects(ctx context.Context) (sets.Set[string], error) {
	objects, err := metadata.NewForConfig(apiserver.Config)
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(apiserver.Config)
	if err != nil {
		return nil, err
	}
	lists, err := kinds.ServerPreferredResources()
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
			if resource.Namespaced && group.Group != rbacv1.GroupName || resource.Kind == "ComponentStatus" || !slices.Contains(resource.Verbs, "list") {
				continue
			}
			found, err := objects.Resource(group.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", resource.Name, err)
			}
			for _, object := range found.Items {
				all.Insert(path.Join(group.WithResource(resource.Name).GroupResource().String(), object.Namespace, object.Name))
			}
		}
	}
	return all, nil
}

// LeftBehind is nil when nothing has come to what was there before, but for what is expected to.
func LeftBehind(ctx context.Context, before sets.Set[string], expected func(string) bool) error {
	after, err := Objects(ctx)
	if err != nil {
		return err
	}
	if rest := slices.DeleteFunc(sets.List(after.Difference(before)), expected); len(rest) > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(rest, ", "))
	}
	return nil
}

// Nothing is expected to stay.
func Nothing(string) bool { return false }

// Definitions are the names of the kinds of every family, from their files, which are called
// <group>_<plural>.yaml. root is the way to the root of the repository.
func Definitions(root string) []string {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(root, "config/*/crd/bases/*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	for n, file := range files {
		group, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		files[n] = plural + "." + group
	}
	return files
}

// OfDefinitions reports whether an object is one of some CRDs, or an APIService that the API server
// makes of them.
func OfDefinitions(object string, definitions []string) bool {
	return slices.ContainsFunc(definitions, func(name string) bool {
		_, group, _ := strings.Cut(name, ".")
		return object == "customresourcedefinitions.apiextensions.k8s.io/"+name ||
			strings.HasPrefix(object, "apiservices.apiregistration.k8s.io/") && strings.HasSuffix(object, "."+group)
	})
}
