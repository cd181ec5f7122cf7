package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ContainerNetwork is a network in which containers reach each other: a namespace. Its spec cannot be changed.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=containernetworks,shortName=ctrnet
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.status.networkName`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +operator-sdk:csv:customresourcedefinitions:displayName="Container Network",order=8,resources={{Namespace,v1,""},{NetworkPolicy,v1,""},{RoleBinding,v1,""},{Event,v1,""}}
type ContainerNetwork struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The network. It cannot be changed.
	//
	// +optional
	// +kubebuilder:default={}
	Spec ContainerNetworkSpec `json:"spec,omitempty"`

	// What the operator observed. Absent until the first reconciliation.
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

// ContainerNetworkSpec describes a network.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a ContainerNetwork cannot be changed: delete it and create another one"
// +kubebuilder:validation:XValidation:rule="has(self.networkName) && size(self.networkName) > 0 || (!has(self.mode) || self.mode == 'session') && !(has(self.persistent) && self.persistent)",message="networkName must be set unless mode is session: name the namespace"
type ContainerNetworkSpec struct {
	// Name of the network's namespace. It must not be one of Kubernetes itself. It may be omitted with mode session: then
	// the name is made from the name of this object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')`,message="networkName must have only lower-case letters, digits and dashes, and begin and end with a letter or a digit, for example shop"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('kube-') && self != 'default'",message="must not be a namespace of Kubernetes itself: choose one for the containers"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Network Name"
	NetworkName string `json:"networkName,omitempty"`

	// Whether the network should have IPv6 addresses. The status repeats it; the addresses of pods are those of the cluster.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="IPv6"
	IPv6 bool `json:"ipv6,omitempty"`

	// Who makes and deletes the namespace. session: it is made, and deleted with this object. persistent: it is made unless
	// it exists, and stays. existing: it must exist, and stays. cleanup: it must exist, and is deleted with this object if
	// it was made for a persistent one. Default: session.
	// +optional
	// +kubebuilder:default=session
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Mode",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:session","urn:alm:descriptor:com.tectonic.ui:select:persistent","urn:alm:descriptor:com.tectonic.ui:select:existing","urn:alm:descriptor:com.tectonic.ui:select:cleanup"}
	Mode ContainerNetworkMode `json:"mode,omitempty"`

	// true overrides mode with persistent. Default: false.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Persistent"
	Persistent bool `json:"persistent,omitempty"`
}

// ContainerNetworkMode says who makes and deletes the namespace of a network.
//
// +kubebuilder:validation:Enum=session;persistent;existing;cleanup
type ContainerNetworkMode string

// The modes.
const (
	// ModeSession makes the namespace, and deletes it with the network.
	ModeSession ContainerNetworkMode = "session"
	// ModePersistent makes the namespace unless it exists, and never deletes it.
	ModePersistent ContainerNetworkMode = "persistent"
	// ModeExisting uses a namespace, and never deletes it.
	ModeExisting ContainerNetworkMode = "existing"
	// ModeCleanup uses a namespace, and deletes it if it was made for a persistent network.
	ModeCleanup ContainerNetworkMode = "cleanup"
)

// EffectiveMode returns the mode that is in effect.
func (s ContainerNetworkSpec) EffectiveMode() ContainerNetworkMode {
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
	// Pending: the namespace is being made, or is not ready yet; Running: containers can run in it; FailedToStart: it cannot
	// be used; Removed: it existed and was deleted; NotFound: it must exist and does not. message says why.
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

	// SHA-256 of a random value that only the operator knows until it makes the namespace, which has that value as an
	// annotation. It proves whose the namespace is until id is known.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace Token Hash",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	NamespaceTokenHash string `json:"namespaceTokenHash,omitempty"`

	// Name of the namespace.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Network Name"
	NetworkName string `json:"networkName,omitempty"`

	// What provides the network: kubernetes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Driver"
	Driver string `json:"driver,omitempty"`

	// Whether IPv6 addresses were requested: the same as spec.ipv6.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="IPv6"
	IPv6 bool `json:"ipv6,omitempty"`

	// Address ranges of pods, as the nodes report them; empty if they report none.
	// +optional
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Subnets"
	Subnets []string `json:"subnets,omitempty"`

	// The first address of each range in subnets, which most network plugins give to the node.
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

	// NamespaceReady and Confined are the steps. Ready is True while the network is Running without a problem. Stalled
	// exists, and is True, only while a person must act.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ContainerNetworkState is the state of a network.
//
// +kubebuilder:validation:Enum=Pending;Running;FailedToStart;Removed;NotFound
type ContainerNetworkState string

// The states.
const (
	// NetworkPending: the namespace is being made, or is not ready yet.
	NetworkPending ContainerNetworkState = "Pending"
	// NetworkRunning: containers can run in it.
	NetworkRunning ContainerNetworkState = "Running"
	// NetworkFailedToStart: the namespace cannot be used.
	NetworkFailedToStart ContainerNetworkState = "FailedToStart"
	// NetworkRemoved: the namespace existed and was deleted. This state is final.
	NetworkRemoved ContainerNetworkState = "Removed"
	// NetworkNotFound: the namespace must exist and does not.
	NetworkNotFound ContainerNetworkState = "NotFound"
)

// NetworkStates are all states, in the order in which they occur.
var NetworkStates = []ContainerNetworkState{NetworkPending, NetworkRunning, NetworkFailedToStart, NetworkNotFound, NetworkRemoved}

// NetworkFinalizer holds a network back from deletion until its namespace is deleted, or left, as its mode says.
const NetworkFinalizer = "usvc-dev.developer.microsoft.com/network-reconciler"

// Driver is what provides every network.
const Driver = "kubernetes"

// The conditions of a ContainerNetwork.
const (
	// ConditionNamespaceReady: the namespace exists, as the mode requires.
	ConditionNamespaceReady = "NamespaceReady"
	// ConditionConfined: the policy that isolates the network is in place, and the operator has its rights in it.
	ConditionConfined = "Confined"
)

// The reasons of ContainerNetworks, in conditions and events.
const (
	// ReasonNetworkReady: the namespace exists.
	ReasonNetworkReady = "NetworkReady"
	// ReasonNamespaceNotFound: no namespace has this name, and the mode does not make it.
	ReasonNamespaceNotFound = "NamespaceNotFound"
	// ReasonNamespaceTaken: a namespace of this name exists that was not made for this network.
	ReasonNamespaceTaken = "NamespaceTaken"
	// ReasonNamespaceRemoved: the namespace existed and was deleted.
	ReasonNamespaceRemoved = "NamespaceRemoved"
	// ReasonNamespaceTerminating: the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonAdmissionPolicyMissing: the API server does not enforce an admission policy that new networks rely on.
	ReasonAdmissionPolicyMissing = "AdmissionPolicyMissing"
	// ReasonConfined: policies and rights are in place.
	ReasonConfined = "Confined"
	// ReasonInUse: the deletion waits for a tunnel proxy.
	ReasonInUse = "InUse"
	// ReasonNamespaceKept: the network is deleted, and its namespace stays as it is.
	ReasonNamespaceKept = "NamespaceKept"
)
