// Package v1alpha1 holds the API of KibaShip: the namespaces of tenants, and the workloads and
// builds in them.
//
// A Project is a namespace of its own for a tenant, an Application describes a workload or database
// in it, and a Deployment builds an Application and records the results.
//
// +kubebuilder:object:generate=true
// +groupName=platform.operator.kibaship.com
// +groupGoName=KibaShip
package v1alpha1
