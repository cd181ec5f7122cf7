// Package v1 holds the API of tunnels between a container network and the host.
//
// A ContainerNetwork is a namespace in which containers reach each other. A ContainerNetworkTunnelProxy connects clients in
// it to servers on the loopback of a node, through a pair of proxies. The proxy on the node opens all connections.
//
// +kubebuilder:object:generate=true
// +groupName=usvc-dev.developer.microsoft.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "usvc-dev.developer.microsoft.com", Version: "v1"}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ContainerNetwork{}, &ContainerNetworkList{}, &ContainerNetworkTunnelProxy{}, &ContainerNetworkTunnelProxyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
