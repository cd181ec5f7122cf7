// Package v1alpha1 holds the API of KibaShip: who may work where, what they run, and how it is
// built.
//
// A Project is a namespace of its own for a tenant, an Application says what runs there, and
// a Deployment builds an Application and remembers what came of it.
//
// +kubebuilder:object:generate=true
// +groupName=platform.operator.kibaship.com
// +groupGoName=KibaShip
package v1alpha1
