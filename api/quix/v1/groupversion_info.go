package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "quix.io", Version: "v1"}

// SchemeGroupVersion is GroupVersion, by the name that generated clients know it by.
var SchemeGroupVersion = GroupVersion

// Resource adds the group of this package to the plural name of a kind.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Environment{}, &EnvironmentList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
