// Package v1 holds the API of tunnels between a container network and the host.
//
// A ContainerNetwork is a namespace in which containers reach each other. A ContainerNetworkTunnelProxy connects clients in
// it to servers on the loopback of a node, through a pair of proxies. The proxy on the node opens all connections.
//
// +kubebuilder:object:generate=true
// +groupName=usvc-dev.developer.microsoft.com
// +groupGoName=Tunnel
package v1
