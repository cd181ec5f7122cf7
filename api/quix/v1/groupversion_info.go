// Package v1 holds the API of Quix environments.
//
// An Environment is a namespace of its own in which the platform's
// ServiceAccount may work, and nowhere else.
//
// +kubebuilder:object:generate=true
// +groupName=quix.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "quix.io", Version: "v1"}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Environment{}, &EnvironmentList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
