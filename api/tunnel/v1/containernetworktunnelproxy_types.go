package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ContainerNetworkTunnelProxy is a pair of proxies that connects clients in a container network to servers on a node:
// clients connect to the client proxy in the network; the server proxy on the node opens all connections to the client
// proxy and to the servers.
//
// Its name must be a DNS label, because a Service has the same name: at most 63 lower-case letters, digits and dashes,
// beginning with a letter.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=containernetworktunnelproxies,shortName=cntp
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')",message="the name must be at most 63 lower-case letters, digits and dashes, beginning with a letter: a Service has the same name"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.containerNetworkName`
// +kubebuilder:printcolumn:name="Version",type=integer,JSONPath=`.status.tunnelConfigurationVersion`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.containerNetworkName`
// +operator-sdk:csv:customresourcedefinitions:displayName="Container Network Tunnel Proxy",order=7,resources={{Pod,v1,""},{Secret,v1,""},{Service,v1,""},{NetworkPolicy,v1,""},{Event,v1,""}}
type ContainerNetworkTunnelProxy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The network, and the tunnels to servers.
	//
	// +required
	Spec ContainerNetworkTunnelProxySpec `json:"spec"`

	// State that the operator observed.
	//
	// +optional
	// +kubebuilder:default={state:"Pending"}
	Status ContainerNetworkTunnelProxyStatus `json:"status,omitempty"`
}

// ContainerNetworkTunnelProxyList is a list of ContainerNetworkTunnelProxies.
//
// +kubebuilder:object:root=true
type ContainerNetworkTunnelProxyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ContainerNetworkTunnelProxy `json:"items"`
}

// ContainerNetworkTunnelProxySpec has the network and the tunnels to servers.
//
// +kubebuilder:validation:XValidation:rule="has(self.baseImage) == has(oldSelf.baseImage) && (!has(self.baseImage) || self.baseImage == oldSelf.baseImage)",message="baseImage cannot be changed: delete this object and create another one"
// +kubebuilder:validation:XValidation:rule="has(self.aliases) == has(oldSelf.aliases) && (!has(self.aliases) || self.aliases == oldSelf.aliases)",message="aliases cannot be changed: delete this object and create another one"
type ContainerNetworkTunnelProxySpec struct {
	// Name of the ContainerNetwork that the client proxy is in. It need not exist yet. Cannot
	// be changed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="containerNetworkName cannot be changed: delete this object and create another one"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Container Network Name"
	ContainerNetworkName string `json:"containerNetworkName"`

	// The tunnels, at most 256. They may be added, changed and removed at any time: a changed tunnel is prepared again,
	// and the others are not touched.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(o, o.name == t.name))",message="the names of tunnels must be unique: rename those that have the same"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.clientProxyPort) || t.clientProxyPort == 0 || self.filter(o, has(o.clientProxyPort) && o.clientProxyPort == t.clientProxyPort && (has(o.clientProxyAddress) && o.clientProxyAddress != '' ? o.clientProxyAddress : '0.0.0.0') == (has(t.clientProxyAddress) && t.clientProxyAddress != '' ? t.clientProxyAddress : '0.0.0.0')).size() == 1)",message="two tunnels must not have the same clientProxyPort at the same clientProxyAddress: change one, or omit it for a random port"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Tunnels"
	Tunnels []TunnelConfiguration `json:"tunnels,omitempty"`

	// Base image of the proxies' image. Cannot be changed. Default: TUNNEL_BASE_IMAGE, which is
	// mcr.microsoft.com/azurelinux/base/core:3.0 unless it is set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[^\s]+$')`,message="baseImage must be the name of an image, without white space"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Base Image"
	BaseImage string `json:"baseImage,omitempty"`

	// More names at which clients in the network find the client proxy, in addition to the name of this object: each
	// is a Service; at most 16. Cannot be changed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^[a-z]([-a-z0-9]*[a-z0-9])?$')`,message="must have only lower-case letters, digits and dashes, begin with a letter, and not end with a dash, for example shop"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Aliases"
	Aliases []string `json:"aliases,omitempty"`
}

// TunnelConfiguration is one tunnel: a port in the network that leads to a server.
type TunnelConfiguration struct {
	// Name of the tunnel, unique in the object, at most 63 characters. Status and logs use it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Name"
	Name string `json:"name"`

	// Address of the server, as seen from the server proxy. TUNNEL_ALLOWED_SERVERS must allow it. Default: localhost, the
	// loopback of the node.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9a-zA-Z:._-]*$')`,message="serverAddress must be a host name or an IP address, for example localhost"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Server Address"
	ServerAddress string `json:"serverAddress,omitempty"`

	// Port of the server, from 1 to 65535.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Server Port"
	ServerPort int32 `json:"serverPort"`

	// Address that the client proxy listens at. Default: 0.0.0.0, all of its addresses, of IPv4 and IPv6.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9a-zA-Z:._-]*$')`,message="clientProxyAddress must be a host name or an IP address, for example 0.0.0.0"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Client Proxy Address"
	ClientProxyAddress string `json:"clientProxyAddress,omitempty"`

	// Port that the client proxy listens at, from 1 to 65535, and neither its control port nor its data port. 0 or absent, or if the
	// port is in use: a random port, which is in the status.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Client Proxy Port"
	ClientProxyPort int32 `json:"clientProxyPort,omitempty"`
}

// ContainerNetworkTunnelProxyStatus is the observed state of a pair of proxies.
type ContainerNetworkTunnelProxyStatus struct {
	// Pending: the network, or another prerequisite, is missing; BuildingImage: the image of the proxies is resolved, and
	// built if necessary; Starting: the proxies are being started; Running: tunnels are prepared as the spec says; Failed:
	// the proxies have ended and are not restarted, and message says why. Failed is final.
	// +optional
	// +kubebuilder:default=Pending
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="State",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	State ContainerNetworkTunnelProxyState `json:"state,omitempty"`

	// Reason for the state, and the remedy.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase:reason"}
	Message string `json:"message,omitempty"`

	// The tunnels, sorted by name.
	// +optional
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Tunnel Statuses"
	TunnelStatuses []TunnelStatus `json:"tunnelStatuses,omitempty"`

	// Increased by one whenever the set of tunnels in effect has changed.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Tunnel Configuration Version"
	TunnelConfigurationVersion int32 `json:"tunnelConfigurationVersion,omitempty"`

	// ID of the container of the client proxy. Absent unless it runs.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Client Proxy Container ID"
	ClientProxyContainerID string `json:"clientProxyContainerId,omitempty"`

	// Image of the client proxy, with its digest.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Client Proxy Container Image"
	ClientProxyContainerImage string `json:"clientProxyContainerImage,omitempty"`

	// Address at which the server proxy reaches the client proxy.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Client Proxy Address"
	ClientProxyAddress string `json:"clientProxyAddress,omitempty"`

	// Port of clientProxyAddress for control.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Client Proxy Control Port"
	ClientProxyControlPort int32 `json:"clientProxyControlPort,omitempty"`

	// Port of clientProxyAddress for data.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Client Proxy Data Port"
	ClientProxyDataPort int32 `json:"clientProxyDataPort,omitempty"`

	// How the server proxy reaches the client proxy: TUNNEL_PUBLISH at the time when the pair was started.
	// +optional
	// +kubebuilder:validation:Enum=PodIP;NodePort;HostPort
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Client Proxy Publish"
	ClientProxyPublish string `json:"clientProxyPublish,omitempty"`

	// Process ID of the server proxy in its own PID namespace, which in a pod is the container's. Absent unless it
	// runs.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Server Proxy Process ID"
	ServerProxyProcessID *int64 `json:"serverProxyProcessId,omitempty"`

	// When the server proxy was started.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Server Proxy Startup Timestamp"
	ServerProxyStartupTimestamp *metav1.MicroTime `json:"serverProxyStartupTimestamp,omitempty"`

	// How the server proxy runs: TUNNEL_BACKEND at the time when the pair was started.
	// +optional
	// +kubebuilder:validation:Enum=HostPod;LocalProcess
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Server Proxy Backend"
	ServerProxyBackend string `json:"serverProxyBackend,omitempty"`

	// File on the operator's host with the standard output of the server proxy. It stays until the object is deleted. Absent
	// if the server proxy is a pod: its log is deleted with it, and message has the last lines.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Server Proxy Standard Output File"
	ServerProxyStdOutFile string `json:"serverProxyStdOutFile,omitempty"`

	// The same for its standard error.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Server Proxy Standard Error File"
	ServerProxyStdErrFile string `json:"serverProxyStdErrFile,omitempty"`

	// Address of the server proxy for control.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Server Proxy Address"
	ServerProxyAddress string `json:"serverProxyAddress,omitempty"`

	// Port of serverProxyAddress for control.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Server Proxy Control Port"
	ServerProxyControlPort int32 `json:"serverProxyControlPort,omitempty"`

	// metadata.generation that this status describes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// NetworkReady, ImageReady, ProxiesReady and TunnelsReady are the steps. Ready is True while all tunnels of the spec
	// accept connections. Stalled exists, and is True, only while a person must act; a Failed pair has it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TunnelStatus is the observed state of one tunnel.
type TunnelStatus struct {
	// Name of the tunnel.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Name"
	Name string `json:"name"`

	// Number that the proxies gave to the tunnel, from 1. It changes with each change of the tunnel.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Tunnel ID"
	TunnelID uint32 `json:"tunnelId,omitempty"`

	// Ready: the client proxy accepts connections; Failed: it does not, and errorMessage says why. A tunnel does not fail
	// because its server does not answer.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="State"
	State TunnelState `json:"state"`

	// The problem, and its remedy.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Error Message"
	ErrorMessage string `json:"errorMessage,omitempty"`

	// A difference from the spec although the tunnel is Ready: clientProxyPort was in use, and the tunnel has another port.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message"
	Message string `json:"message,omitempty"`

	// When this status changed last.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Timestamp"
	Timestamp metav1.MicroTime `json:"timestamp"`

	// Addresses at which the client proxy listens.
	// +optional
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Client Proxy Addresses"
	ClientProxyAddresses []string `json:"clientProxyAddresses,omitempty"`

	// Port at which it listens.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Client Proxy Port"
	ClientProxyPort int32 `json:"clientProxyPort,omitempty"`
}

// ContainerNetworkTunnelProxyState is the state of a pair of proxies.
//
// +kubebuilder:validation:Enum="";Pending;BuildingImage;Starting;Running;Failed
type ContainerNetworkTunnelProxyState string

// The states.
const (
	// StateEmpty is the same as StatePending: no status has been written yet.
	StateEmpty ContainerNetworkTunnelProxyState = ""
	// StatePending: a prerequisite is missing, such as the network.
	StatePending ContainerNetworkTunnelProxyState = "Pending"
	// StateBuildingImage: the image is resolved, and built if necessary.
	StateBuildingImage ContainerNetworkTunnelProxyState = "BuildingImage"
	// StateStarting: the proxies are being started.
	StateStarting ContainerNetworkTunnelProxyState = "Starting"
	// StateRunning: tunnels are prepared as the spec says.
	StateRunning ContainerNetworkTunnelProxyState = "Running"
	// StateFailed: the proxies have ended and are not restarted. This state is final.
	StateFailed ContainerNetworkTunnelProxyState = "Failed"
)

// States are all states, in the order in which they occur.
var States = []ContainerNetworkTunnelProxyState{StatePending, StateBuildingImage, StateStarting, StateRunning, StateFailed}

// TunnelState says whether a tunnel accepts connections.
//
// +kubebuilder:validation:Enum=Ready;Failed
type TunnelState string

// The states of a tunnel.
const (
	// TunnelReady: the client proxy accepts connections.
	TunnelReady TunnelState = "Ready"
	// TunnelFailed: it does not; errorMessage says why.
	TunnelFailed TunnelState = "Failed"
)

// Finalizer holds a pair of proxies back from deletion until all that belongs to it is gone.
const Finalizer = "usvc-dev.developer.microsoft.com/tunnel-proxy-reconciler"

// AnnotationHostNode names the node whose loopback the servers listen at. It must be set before the pods are made. The
// default is TUNNEL_HOST_NODE, or else the node of the client proxy.
const AnnotationHostNode = "usvc-dev.developer.microsoft.com/host-node"

// Labels and annotations of the operator's objects.
const (
	// LabelManagedBy is on everything, with the value ManagedBy.
	LabelManagedBy = "usvc-dev.developer.microsoft.com/managed-by"
	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "berg-operator"
	// LabelProxy holds the UID of the pair of proxies that an object belongs to.
	LabelProxy = "usvc-dev.developer.microsoft.com/tunnel-proxy-uid"
	// LabelRole is the role of a pod: RoleClient or RoleServer.
	LabelRole = "usvc-dev.developer.microsoft.com/role"
	// RoleClient is the proxy in the network.
	RoleClient = "client-proxy"
	// RoleServer is the proxy on the node.
	RoleServer = "server-proxy"
	// AnnotationPersistent is on a namespace that was made for a persistent network.
	AnnotationPersistent = "usvc-dev.developer.microsoft.com/persistent"
)

// The conditions of a ContainerNetworkTunnelProxy.
const (
	// ConditionNetworkReady: the container network exists and is Running.
	ConditionNetworkReady = "NetworkReady"
	// ConditionImageReady: the image of the proxies is in its registry.
	ConditionImageReady = "ImageReady"
	// ConditionProxiesReady: both proxies run, and answer.
	ConditionProxiesReady = "ProxiesReady"
	// ConditionTunnelsReady: every tunnel of the spec accepts connections.
	ConditionTunnelsReady = "TunnelsReady"
	// ConditionServerReachable: the server of every tunnel accepts connections. It is checked when a client connects, and every minute.
	ConditionServerReachable = "ServerReachable"
)

// The reasons of ContainerNetworkTunnelProxies, in conditions and events.
const (
	// ReasonNetworkFound: the network is Running.
	ReasonNetworkFound = "NetworkFound"
	// ReasonNetworkNotFound: no ContainerNetwork has this name.
	ReasonNetworkNotFound = "NetworkNotFound"
	// ReasonNetworkNotRunning: the network is not in state Running.
	ReasonNetworkNotRunning = "NetworkNotRunning"
	// ReasonNetworkGone: the network was Running and no longer is.
	ReasonNetworkGone = "NetworkGone"
	// ReasonHostNotReady: the node that was named as the host is missing or not ready.
	ReasonHostNotReady = "HostNotReady"
	// ReasonHostRightsMissing: the operator lacks rights in its own namespace.
	ReasonHostRightsMissing = "HostRightsMissing"
	// ReasonImageReady: the image exists.
	ReasonImageReady = "ImageReady"
	// ReasonImageBuilding: the image is resolved, and built if necessary.
	ReasonImageBuilding = "ImageBuilding"
	// ReasonImageFailed: it could not be built.
	ReasonImageFailed = "ImageFailed"
	// ReasonImageRetried: building the image failed and is retried, because a registry cannot be reached.
	ReasonImageRetried = "ImageRetried"
	// ReasonRegistryNotReady: the registry does not answer; it is asked again.
	ReasonRegistryNotReady = "RegistryNotReady"
	// ReasonImageNotConfigured: neither an image nor a registry is set.
	ReasonImageNotConfigured = "ImageNotConfigured"
	// ReasonProxiesStarting: the proxies are being started.
	ReasonProxiesStarting = "ProxiesStarting"
	// ReasonProxiesReady: both proxies answer.
	ReasonProxiesReady = "ProxiesReady"
	// ReasonProxyEnded: one of the proxies has ended, or is gone.
	ReasonProxyEnded = "ProxyEnded"
	// ReasonTunnelsReady: all tunnels accept connections.
	ReasonTunnelsReady = "TunnelsReady"
	// ReasonTunnelsPreparing: tunnels are being prepared or removed.
	ReasonTunnelsPreparing = "TunnelsPreparing"
	// ReasonServerReachable: the servers of all tunnels accept connections.
	ReasonServerReachable = "ServerReachable"
	// ReasonServerUnreachable: the server of a tunnel does not accept connections.
	ReasonServerUnreachable = "ServerUnreachable"
	// ReasonTunnelFailed: a tunnel does not accept connections.
	ReasonTunnelFailed = "TunnelFailed"
	// ReasonTunnelReady: a tunnel accepts connections.
	ReasonTunnelReady = "TunnelReady"
	// ReasonControlFailed: the server proxy does not answer; it is called again.
	ReasonControlFailed = "ControlFailed"
	// ReasonFailed: the proxies have ended and are not restarted.
	ReasonFailed = "Failed"
)

// Reasons that both kinds have.
const (
	// ReasonWaiting: something else must come first.
	ReasonWaiting = "Waiting"
	// ReasonOwnershipConflict: an object of that name exists that does not belong to this object.
	ReasonOwnershipConflict = "OwnershipConflict"
	// ReasonContested: another client undoes each write.
	ReasonContested = "Contested"
	// ReasonRefused: the API server refuses an object.
	ReasonRefused = "Refused"
	// ReasonWriteFailed: the API server did not accept a write; it is retried.
	ReasonWriteFailed = "WriteFailed"
	// ReasonTerminating: the object is being deleted.
	ReasonTerminating = "Terminating"
)

// Conditions that both kinds have.
const (
	// ConditionReady: a network is Running without a problem; all tunnels of a pair of proxies accept connections.
	ConditionReady = "Ready"
	// ConditionStalled exists, and is True, only while a person must act. A Failed pair of proxies has it.
	ConditionStalled = "Stalled"
)
