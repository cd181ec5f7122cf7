// Package v1 holds the API of Quix environments.
//
// An Environment is a namespace of its own in which the platform's
// ServiceAccount may work, and nowhere else.
//
// +kubebuilder:object:generate=true
// +groupName=quix.io
// +groupGoName=Quix
package v1
