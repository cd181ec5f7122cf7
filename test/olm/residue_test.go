package olm

import (
	"context"
	"fmt"
	"slices"

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
