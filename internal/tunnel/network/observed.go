package network

import (
	corev1 "k8s.io/api/core/v1"
)

// Observed is everything outside a network that decides what happens to it.
type Observed struct {
	// Namespace is nil if it does not exist.
	Namespace *corev1.Namespace
	// Ours: the namespace was made for this network.
	Ours bool
	// Subnets are the pod address ranges of all nodes, sorted.
	Subnets []string
	// ControlPorts are the ports of the client proxies that exist. The settings may have changed since.
	ControlPorts []int32
	// Containers are the IDs of the containers in the namespace, sorted. They are known if Counted.
	Containers []string
	Counted    bool
	// MissingPolicy says which admission policy is not in force that the network relies on; empty if none is missing. Bound is known
	// only then: the operator has its rights in the namespace.
	MissingPolicy string
	Bound         bool
}
