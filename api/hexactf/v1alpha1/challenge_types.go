package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Challenge is one running copy of a ChallengeDefinition, for one player. Its labels
// apps.hexactf.io/challengeId and apps.hexactf.io/user identify the problem and the player:
// both must be lower-case letters, digits and dashes, because they become parts of names.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=challenges,shortName=hchal,categories=hexactf
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentStatus.state`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Endpoint",type=integer,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="Definition",type=string,JSONPath=`.spec.definition`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expiresAt`
// +kubebuilder:printcolumn:name="Error",type=string,priority=1,JSONPath=`.status.currentStatus.errorMsg`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.definition`
// +operator-sdk:csv:customresourcedefinitions:displayName="HexaCTF Challenge",order=5,resources={{Deployment,v1,""},{Service,v1,""},{NetworkPolicy,v1,""},{Event,v1,""}}
type Challenge struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which definition this Challenge is a copy of.
	//
	// +required
	Spec ChallengeSpec `json:"spec"`

	// State that the operator observed. A Challenge that it has not reconciled yet has no status:
	// clients must read it again.
	//
	// +optional
	Status ChallengeStatus `json:"status,omitempty"`
}

// ChallengeList is a list of Challenges.
//
// +kubebuilder:object:root=true
type ChallengeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Challenge `json:"items"`
}

// ChallengeSpec says which definition runs.
type ChallengeSpec struct {
	// Name of a ChallengeDefinition in the namespace of this Challenge. Cannot be changed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="definition cannot be changed: delete this Challenge and create another one"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Definition"
	Definition string `json:"definition"`

	// The namespace of this Challenge, for clients that send it. If it differs from
	// metadata.namespace, the Challenge is deleted with an error: all objects are created in
	// metadata.namespace. Default: not checked.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Namespace"
	Namespace string `json:"namespace,omitempty"`
}

// ChallengeStatus is the observed state of a Challenge.
type ChallengeStatus struct {
	// When the operator first reconciled this Challenge. It is written once; the duration of
	// the Challenge counts from here.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Started At"
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// The state of the Challenge.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Current Status"
	CurrentStatus CurrentStatus `json:"currentStatus,omitempty"`

	// isOne of the definition as it was at the start: whether the Challenge is shared and
	// does not expire.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Is One"
	IsOne bool `json:"isOne,omitempty"`

	// Node port at which players reach the Challenge: the first port of its Service of type NodePort.
	// If there are several such Services, the last one counts. It is here as soon as the Service has
	// its port; players reach it there in state Running. Absent without such a Service.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Endpoint"
	Endpoint int32 `json:"endpoint,omitempty"`

	// When the Challenge expires and is deleted: startedAt plus the duration of the definition
	// as it was at the start. Absent if it does not expire.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Expires At"
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// When all Deployments were available and the endpoint was known for the first time.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Running At"
	RunningAt *metav1.Time `json:"runningAt,omitempty"`

	// The label apps.hexactf.io/challengeId as it was at the start, for names and messages.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Challenge ID"
	ChallengeID string `json:"challengeId,omitempty"`

	// The label apps.hexactf.io/user as it was at the start, for names and messages.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="User"
	User string `json:"user,omitempty"`

	// metadata.generation that this status describes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The messages to the platform: each is recorded here together with the change of state,
	// before it is sent. Absent if no message was ever recorded.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Messages"
	Messages *Messages `json:"messages,omitempty"`

	// Inputs that the Challenge was started with, and from which its objects are repaired: the
	// components of the definition, and the settings of their isolation.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Definition Snapshot",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	DefinitionSnapshot *runtime.RawExtension `json:"definitionSnapshot,omitempty"`

	// Which steps are done, which are not, and why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CurrentStatus is the state of a Challenge.
type CurrentStatus struct {
	// None: not reconciled yet; Creating: its objects are being created, or are not available
	// yet; Running: all Deployments were available and the endpoint is known; Error: it
	// cannot run, errorMsg says why; Terminating: it is being deleted.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="State",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	State State `json:"state,omitempty"`

	// The problem and its remedy; empty if there is none.
	// +required
	// +kubebuilder:default=""
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Error Message",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase:reason"}
	ErrorMsg string `json:"errorMsg"`
}

// Messages are the messages about one Challenge to the platform.
type Messages struct {
	// Number of recorded messages, which is the sequence number of the last one.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Recorded"
	Recorded int64 `json:"recorded"`

	// The messages that are not known to be acknowledged, in order. An acknowledged message
	// stays here for some seconds.
	// +optional
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Outbox"
	Outbox []Message `json:"outbox,omitempty"`
}

// Message is one message, as it is sent.
type Message struct {
	// Number of the message for its Challenge, from 1.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Sequence"
	Sequence int64 `json:"sequence"`

	// The state in the message: Creating, Running, Error or Deleted.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="New Status"
	NewStatus State `json:"newStatus"`

	// The endpoint in the message, if there is one.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Endpoint"
	Endpoint int32 `json:"endpoint,omitempty"`

	// When the state changed.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Timestamp"
	Timestamp metav1.MicroTime `json:"timestamp"`
}

// State is the state of a Challenge.
//
// +kubebuilder:validation:Enum=None;Creating;Running;Error;Terminating;Deleted
type State string

// The states. Deleted occurs only in messages.
const (
	// StateNone: the operator has not reconciled it yet. Metrics show it, and no status has it.
	StateNone State = "None"
	// StateCreating: its objects are being created, or are not available yet.
	StateCreating State = "Creating"
	// StateRunning: all Deployments were available, and the endpoint was known.
	StateRunning State = "Running"
	// StateError: it cannot run. It continues when the problem is fixed.
	StateError State = "Error"
	// StateTerminating: it is being deleted.
	StateTerminating State = "Terminating"
	// StateDeleted: it is gone.
	StateDeleted State = "Deleted"
)

// States lists every state of a resource, in their usual order.
var States = []State{StateNone, StateCreating, StateRunning, StateError, StateTerminating}

// The conditions of a Challenge.
const (
	// ConditionDefinitionFound: the labels and the definition are valid, and the challenge runs that definition.
	ConditionDefinitionFound = "DefinitionFound"
	// ConditionResourcesCreated: all its objects are as they should be.
	ConditionResourcesCreated = "ResourcesCreated"
	// ConditionAvailable: its Deployments are available now, and the endpoint is known.
	ConditionAvailable = "Available"
	// ConditionNotifying: the broker delays no message.
	ConditionNotifying = "Notifying"
	// ConditionReady: all objects are as they should be, and the challenge is available now.
	ConditionReady = "Ready"
	// ConditionStalled: a person must act. It is absent otherwise.
	ConditionStalled = "Stalled"
)

// The reasons of conditions and events.
const (
	// ReasonInvalidLabels: a label is missing, or cannot be part of a name. The Challenge is deleted.
	ReasonInvalidLabels = "InvalidLabels"
	// ReasonNamespaceMismatch: spec.namespace is another namespace. The Challenge is deleted.
	ReasonNamespaceMismatch = "NamespaceMismatch"
	// ReasonDefinitionFound: the challenge runs its definition.
	ReasonDefinitionFound = "DefinitionFound"
	// ReasonDefinitionNotFound: its namespace has no such definition. After HEXACTF_DEFINITION_TIMEOUT the Challenge is deleted.
	ReasonDefinitionNotFound = "DefinitionNotFound"
	// ReasonInvalidDefinition: the message names the field of the definition.
	ReasonInvalidDefinition = "InvalidDefinition"
	// ReasonInherited: another operator has started the challenge.
	ReasonInherited = "Inherited"
	// ReasonWaiting: an earlier step comes first.
	ReasonWaiting = "Waiting"
	// ReasonCreating: its objects are being created.
	ReasonCreating = "Creating"
	// ReasonResourcesCreated: all objects are as they should be.
	ReasonResourcesCreated = "ResourcesCreated"
	// ReasonOwnershipConflict: an object of this name belongs to another owner.
	ReasonOwnershipConflict = "OwnershipConflict"
	// ReasonContested: another client, which the message names, undoes each repair.
	ReasonContested = "Contested"
	// ReasonRefused: the API server refuses an object.
	ReasonRefused = "Refused"
	// ReasonWriteFailed: the API server failed. It is retried.
	ReasonWriteFailed = "WriteFailed"
	// ReasonAPINotInstalled: the API server does not serve a kind.
	ReasonAPINotInstalled = "APINotInstalled"
	// ReasonStarting: the Deployments are not available yet.
	ReasonStarting = "Starting"
	// ReasonStartDeadlineExceeded: they were not available within HEXACTF_START_DEADLINE.
	ReasonStartDeadlineExceeded = "StartDeadlineExceeded"
	// ReasonUnavailable: the challenge has run, and is not available now.
	ReasonUnavailable = "Unavailable"
	// ReasonAvailable: all Deployments are available, and the endpoint is known.
	ReasonAvailable = "Available"
	// ReasonRunning: the challenge runs.
	ReasonRunning = "Running"
	// ReasonEndpointChanged: an event: another Service took the node port while its own was missing.
	ReasonEndpointChanged = "EndpointChanged"
	// ReasonExpired: an event: the lifetime is over.
	ReasonExpired = "Expired"
	// ReasonTerminating: the Challenge is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonDeletionBlocked: an event: the challenge has expired, and the API server refuses its deletion.
	ReasonDeletionBlocked = "DeletionBlocked"
	// ReasonNotifying: the broker delays no message.
	ReasonNotifying = "Notifying"
	// ReasonNotifyOff: there is no broker.
	ReasonNotifyOff = "NotifyOff"
	// ReasonNotifyFailed: the broker does not accept a message.
	ReasonNotifyFailed = "NotifyFailed"
	// ReasonMessagesLost: an event: the operator gave up messages, which may be lost.
	ReasonMessagesLost = "MessagesLost"
	// ReasonOrphaned: an event: the Challenge is being deleted without its objects, which stay.
	ReasonOrphaned = "Orphaned"
	// ReasonOrphansDeleted: an event: such objects had the names of a Challenge, and are deleted and created again.
	ReasonOrphansDeleted = "OrphansDeleted"
)

// Finalizer keeps a Challenge until the message about its deletion is sent.
const Finalizer = "challenge.hexactf.io/finalizer"

// DefaultDuration is how long a Challenge lives if its definition has no duration.
const DefaultDuration = 30 * time.Minute

// The labels that clients set on a Challenge.
const (
	LabelChallengeID = "apps.hexactf.io/challengeId"
	LabelUser        = "apps.hexactf.io/user"
)

// The labels and annotations of the objects that belong to a Challenge.
const (
	LabelInstance   = "apps.hexactf.io/instance"
	LabelName       = "apps.hexactf.io/name"
	LabelPartOf     = "apps.hexactf.io/part-of"
	LabelManagedBy  = "apps.hexactf.io/managed-by"
	LabelDeployment = "apps.hexactf.io/deployment"
	LabelService    = "apps.hexactf.io/service"

	// AnnotationUID identifies the Challenge to which an object belongs.
	AnnotationUID = "apps.hexactf.io/challenge-uid"
	// AnnotationChecksum is the checksum of the object as the operator wrote it, so that it detects that it would write
	// another one.
	AnnotationChecksum = "apps.hexactf.io/plan-checksum"

	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "challenge-operator"
)
