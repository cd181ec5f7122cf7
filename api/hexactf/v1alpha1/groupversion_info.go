// Package v1alpha1 holds the API of HexaCTF challenges.
//
// A Challenge runs the components of a ChallengeDefinition for one player, tells the
// platform about each step by a message, and ends when its time is over.
//
// +kubebuilder:object:generate=true
// +groupName=apps.hexactf.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "apps.hexactf.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Challenge{}, &ChallengeList{}, &ChallengeDefinition{}, &ChallengeDefinitionList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
