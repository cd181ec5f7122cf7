package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ContainerNetwork is a network that containers reach each other in: a namespace. What is
// wanted of it cannot be changed.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=containernetworks,shortName=ctrnet
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.status.networkName`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +operator-sdk:csv:customresourcedefinitions:displayName="Container Network",order=8,resources={{Namespace,v1,""},{NetworkPolicy,v1,""},{RoleBinding,v1,""},{Event,v1,""}}
type ContainerNetwork struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the network is. Cannot be changed.
	//
	// +optional
	// +kubebuilder:default={}
	Spec ContainerNetworkSpec `json:"spec,omitempty"`

	// What the operator observed. Absent until it has seen the network.
	//
	// +optional
	Status ContainerNetworkStatus `json:"status,omitempty"`
}

// ContainerNetworkList is a list of ContainerNetworks.
//
// +kubebuilder:object:root=true
type ContainerNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ContainerNetwork `json:"items"`
}

// ContainerNetworkSpec is what a network is.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a ContainerNetwork cannot be changed: delete it and create another one"
// +kubebuilder:validation:XValidation:rule="has(self.networkName) && size(self.networkName) > 0 || (!has(self.mode) || self.mode == 'session') && !(has(self.persistent) && self.persistent)",message="networkName must be set unless mode is session: name the namespace"
type ContainerNetworkSpec struct {
	// Name of the namespace that the network is. It must not be one of Kubernetes' own. May be
	// left out with mode session: then one is made of the name of this object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('kube-') && self != 'default'",message="must not be a namespace of Kubernetes itself: choose one for the containers"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Network Name"
	NetworkName string `json:"networkName,omitempty"`

	// Whether the network should have IPv6 addresses. It is told in the status as it is asked
	// for: the addresses of pods are those of the cluster.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="IPv6"
	IPv6 bool `json:"ipv6,omitempty"`

	// Whose the namespace is. session: made, and deleted with this object. persistent: made
	// unless it exists, and stays. existing: must exist, and stays. cleanup: must exist, and is
	// deleted with this object if it was made for a persistent one. Default: session.
	// +optional
	// +kubebuilder:default=session
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Mode",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:session","urn:alm:descriptor:com.tectonic.ui:select:persistent","urn:alm:descriptor:com.tectonic.ui:select:existing","urn:alm:descriptor:com.tectonic.ui:select:cleanup"}
	Mode ContainerNetworkMode `json:"mode,omitempty"`

	// true is the same as mode persistent, whatever mode says. Default: false.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Persistent"
	Persistent bool `json:"persistent,omitempty"`
}

// ContainerNetworkMode says whose the namespace of a network is.
//
// +kubebuilder:validation:Enum=session;persistent;existing;cleanup
type ContainerNetworkMode string

// The modes.
const (
	// ModeSession makes the namespace, and deletes it with the network.
	ModeSession ContainerNetworkMode = "session"
	// ModePersistent makes the namespace unless it exists, and leaves it.
	ModePersistent ContainerNetworkMode = "persistent"
	// ModeExisting uses a namespace, and leaves it.
	ModeExisting ContainerNetworkMode = "existing"
	// ModeCleanup uses a namespace, and deletes it if a persistent network has made it.
	ModeCleanup ContainerNetworkMode = "cleanup"
)

// ModeOf returns the mode that counts.
func (s ContainerNetworkSpec) ModeOf() ContainerNetworkMode {
	switch {
	case s.Persistent:
		return ModePersistent
	case s.Mode == "":
		return ModeSession
	default:
		return s.Mode
	}
}

// ContainerNetworkStatus is what the operator observed of a network.
type ContainerNetworkStatus struct {
	// Pending: the namespace is being made, or is not ready yet; Running: containers can be in
	// it; FailedToStart: it cannot be used; Removed: it was there, and is gone; NotFound: it
	// should exist and does not. message says why.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="State",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	State ContainerNetworkState `json:"state,omitempty"`

	// Why the state is what it is, and what to do about it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase:reason"}
	Message string `json:"message,omitempty"`

	// UID of the namespace.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="ID"
	ID string `json:"id,omitempty"`

	// Name of the namespace.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Network Name"
	NetworkName string `json:"networkName,omitempty"`

	// What the network is made by: kubernetes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Driver"
	Driver string `json:"driver,omitempty"`

	// spec.ipv6, once the network is there.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="IPv6"
	IPv6 bool `json:"ipv6,omitempty"`

	// Address ranges of pods, as the nodes tell them; none where they do not.
	// +optional
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Subnets"
	Subnets []string `json:"subnets,omitempty"`

	// The first address of each range in subnets, at which most networks have the node.
	// +optional
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Gateways"
	Gateways []string `json:"gateways,omitempty"`

	// IDs of the containers in the network, sorted, at most 1,000.
	// +optional
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Container IDs"
	ContainerIDs []string `json:"containerIds,omitempty"`

	// metadata.generation that this status describes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// What is done, what is missing and why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ContainerNetworkState is a step in the life of a network.
//
// +kubebuilder:validation:Enum=Pending;Running;FailedToStart;Removed;NotFound
type ContainerNetworkState string

// The states.
const (
	// NetworkPending: the namespace is being made, or is not ready yet.
	NetworkPending ContainerNetworkState = "Pending"
	// NetworkRunning: containers can be in it.
	NetworkRunning ContainerNetworkState = "Running"
	// NetworkFailedToStart: the namespace cannot be used.
	NetworkFailedToStart ContainerNetworkState = "FailedToStart"
	// NetworkRemoved: the namespace was there, and is gone. It stays so.
	NetworkRemoved ContainerNetworkState = "Removed"
	// NetworkNotFound: the namespace should exist and does not.
	NetworkNotFound ContainerNetworkState = "NotFound"
)

// NetworkStates are all states, in the order of a life.
var NetworkStates = []ContainerNetworkState{NetworkPending, NetworkRunning, NetworkFailedToStart, NetworkNotFound, NetworkRemoved}

// NetworkFinalizer keeps a network until its namespace is as its mode wants it.
const NetworkFinalizer = "usvc-dev.developer.microsoft.com/network-reconciler"

// Driver is what every network is made by.
const Driver = "kubernetes"

// The conditions of a ContainerNetwork.
const (
	// ConditionNamespaceReady: the namespace is there, as the mode wants it.
	ConditionNamespaceReady = "NamespaceReady"
	// ConditionConfined: what keeps the network to itself is in place, and the operator may work in it.
	ConditionConfined = "Confined"
)

// The reasons of ContainerNetworks, in conditions and events.
const (
	// ReasonNetworkReady: the namespace is there.
	ReasonNetworkReady = "NetworkReady"
	// ReasonNamespaceNotFound: there is no namespace of this name, and the mode makes none.
	ReasonNamespaceNotFound = "NamespaceNotFound"
	// ReasonNamespaceTaken: a namespace of this name exists that was not made for this network.
	ReasonNamespaceTaken = "NamespaceTaken"
	// ReasonNamespaceRemoved: the namespace was there and is gone.
	ReasonNamespaceRemoved = "NamespaceRemoved"
	// ReasonNamespaceTerminating: the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonConfined: policies and rights are in place.
	ReasonConfined = "Confined"
	// ReasonInUse: the deletion waits for a tunnel proxy.
	ReasonInUse = "InUse"
	// ReasonNamespaceKept: the network is gone, and its namespace stays as it is.
	ReasonNamespaceKept = "NamespaceKept"
)
