package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ChallengeInstance is one running copy of a Challenge for one owner. The
// operator builds a namespace for it, reports its endpoints, and deletes it,
// with all that belongs to it, when it expires.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=ci;instance,categories=all
// +kubebuilder:printcolumn:name="Challenge",type=string,JSONPath=`.spec.challengeRef.name`
// +kubebuilder:printcolumn:name="Owner",type=string,priority=1,JSONPath=`.spec.ownerId`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Cause",type=string,JSONPath=`.status.cause`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.services[0].url`
// +kubebuilder:printcolumn:name="Namespace",type=string,priority=1,JSONPath=`.status.namespace`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Expires",type=string,priority=1,JSONPath=`.status.expiresAt`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:selectablefield:JSONPath=`.spec.ownerId`
// +kubebuilder:selectablefield:JSONPath=`.spec.challengeRef.name`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +operator-sdk:csv:customresourcedefinitions:displayName="Challenge Instance",order=2,resources={{Namespace,v1,""},{Deployment,v1,""},{Service,v1,""},{ConfigMap,v1,""},{Secret,v1,""},{Pod,v1,""},{PodDisruptionBudget,v1,""},{HTTPRoute,v1,""},{TLSRoute,v1,""},{CiliumNetworkPolicy,v2,""},{NetworkPolicy,v1,""},{Event,v1,""}}
type ChallengeInstance struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which Challenge runs, for which owner, with which flag, and for how long.
	//
	// +required
	Spec ChallengeInstanceSpec `json:"spec"`

	// State that the operator observed: the progress of the instance, its addresses for players, and
	// its problems. Written by the operator alone.
	//
	// +optional
	// +kubebuilder:default={}
	Status ChallengeInstanceStatus `json:"status,omitempty"`
}

// ChallengeInstanceList is a list of ChallengeInstances.
//
// +kubebuilder:object:root=true
type ChallengeInstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ChallengeInstance `json:"items"`
}

// ChallengeInstanceSpec says which Challenge runs, for which owner, and for how long.
//
// The rules are here and not at the fields, because an error of a field's
// own rule repeats the field's value, and a flag must not be repeated.
//
// The maximum timeout is the maximum number of nanoseconds in 64 bits. Its rule adds up seconds,
// because the function duration fails for longer ones, with a message that does not help.
//
// +kubebuilder:validation:XValidation:rule="self.challengeRef == oldSelf.challengeRef",message="challengeRef cannot be changed: delete this instance and create another one",fieldPath=".challengeRef"
// +kubebuilder:validation:XValidation:rule="self.ownerId == oldSelf.ownerId",message="ownerId cannot be changed: delete this instance and create another one",fieldPath=".ownerId"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.flag) || size(oldSelf.flag) == 0 || (has(self.flag) && self.flag == oldSelf.flag)",message="flag can be set once and not be changed afterwards: delete this instance and create another one"
// +kubebuilder:validation:XValidation:rule="!has(self.flag) || bytes(self.flag).size() <= 1024",message="flag must not be longer than 1024 bytes in UTF-8"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || !self.timeout.matches('^[0hms]+$')",message="timeout must be longer than zero, for example 30m or 2h",fieldPath=".timeout"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || !self.timeout.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?$') || (self.timeout.matches('^(0*[0-9]{1,7}h)?(0*[0-9]{1,9}m)?(0*[0-9]{1,10}s)?$') && int('0' + self.timeout.find('[0-9]+h').split('h')[0]) * 3600 + int('0' + self.timeout.find('[0-9]+m').split('m')[0]) * 60 + int('0' + self.timeout.find('[0-9]+s').split('s')[0]) <= 9223372036)",message="timeout must be at most 2562047h",fieldPath=".timeout"
type ChallengeInstanceSpec struct {
	// The Challenge to run, for example {name: guestbook}. Cannot be changed.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Challenge"
	ChallengeRef ChallengeReference `json:"challengeRef"`

	// UUID, in lower case, of the player or team that owns the instance. One
	// owner has one instance at a time. Cannot be changed.
	// +required
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')`,message="ownerId must be a UUID in lower case, for example 0190a5b4-7c1e-7d3a-9f52-3b6d8e1f4a70"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Owner"
	OwnerID string `json:"ownerId"`

	// Flag of this instance, at most 1024 bytes in UTF-8, for example
	// flag{only_for_alice}. Needed when a container of the Challenge has a
	// dynamicFlag. Can be set once while it is empty, and not be changed afterwards.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Flag",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:password"}
	Flag string `json:"flag,omitempty"`

	// How long the instance lives, counted from status.startedAt, for example
	// 2h, 30m or 1h30m, at most 2562047h. May be changed while it lives. Default: the
	// operator's CHALLENGE_INSTANCE_TIMEOUT (2h) as it was at the start;
	// CHALLENGE_MAX_LIFETIME caps it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]+h)?([0-9]+m)?([0-9]+s)?$')`,message="timeout must be whole hours, minutes and seconds in this order, for example 2h, 30m or 1h30m"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Timeout"
	Timeout string `json:"timeout,omitempty"`

	// Latest end of the instance, for example the end of the event, as in 2030-01-31T18:00:00Z. It
	// expires then however long it waited for its start, and also while it waits. May be changed while
	// it lives. Default: none, spec.timeout alone counts.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Until"
	Until *metav1.Time `json:"until,omitempty"`

	// Set it to terminate the instance: the operator then deletes it. UserRequest:
	// the player asked; AdminTermination: an organiser did; Timeout: the operator
	// itself sets it when the instance expires. Default: empty, the instance
	// lives.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Termination Reason",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	TerminationReason TerminationReason `json:"terminationReason,omitempty"`
}

// ChallengeReference names a Challenge.
type ChallengeReference struct {
	// Name of the Challenge (metadata.name), at most 64 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Name"
	Name string `json:"name"`

	// Namespace of the Challenge. Default: the operator's CHALLENGE_NAMESPACE.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Namespace"
	Namespace string `json:"namespace,omitempty"`
}

// TerminationReason says why an instance terminates.
//
// +kubebuilder:validation:Enum=UserRequest;Timeout;AdminTermination
type TerminationReason string

// The reasons for which an instance terminates.
const (
	// TerminationUserRequest: the owner asked for it, by the platform, or a client deleted the instance.
	TerminationUserRequest TerminationReason = "UserRequest"
	// TerminationTimeout: the instance expired. The operator sets it.
	TerminationTimeout TerminationReason = "Timeout"
	// TerminationAdmin: an organiser ended it, or its Challenge was deleted and CHALLENGE_WITHDRAWAL_POLICY is Stop.
	TerminationAdmin TerminationReason = "AdminTermination"
)

// ChallengeInstanceStatus is the observed state of an instance.
type ChallengeInstanceStatus struct {
	// UUID (version 7) of this instance, set once before anything is created. It
	// orders instances by the time of their start.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Instance ID"
	InstanceID string `json:"instanceId,omitempty"`

	// How far the instance has come. Pending: checked or waiting;
	// Creating: its objects are being written; Starting: its pods are starting;
	// Running: all pods were ready; Terminating: its namespace is being deleted;
	// Terminated: its namespace is gone; Failed: it cannot be built, the
	// conditions say why, and it continues by itself when that is fixed.
	// +optional
	// +kubebuilder:default=Pending
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Phase",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	Phase Phase `json:"phase,omitempty"`

	// Why the instance does not run yet, or not any more, in one word out of a short closed list that
	// a platform can put into a sentence for a player. The first of several problems counts.
	// NotReadyYet: no problem is known, the start takes time; also while a readiness probe fails.
	// Queued: a limit on instances is reached. OwnerBusy: it waits for an earlier instance of its
	// owner. Frozen: its Challenge is frozen. NoCapacity: no node has enough free resources.
	// ImageUnavailable: an image cannot be pulled. Crashing: a container ends by itself, also between
	// two attempts. Refused: the cluster refuses one of its objects. AddressPending: a node port or a
	// route is not there. Invalid: the Challenge, or the flag, must be corrected. Empty in the phase
	// Running, and while it is being deleted. The conditions have the details, for organisers.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Cause"
	Cause Cause `json:"cause,omitempty"`

	// Where the time of the start went: when each stage was over. Every time is written
	// with the next change of the status, and all that are known are there in the
	// phase Running; afterwards they do not change.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Start"
	Start *StartTimes `json:"start,omitempty"`

	// Namespace that holds the instance: challenge-<ownerId>; of an instance that took over a prepared one, the namespace of
	// that. Its label berg.norelect.ch/owner-id is the owner.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace",xDescriptors={"urn:alm:descriptor:io.kubernetes:Namespace"}
	Namespace string `json:"namespace,omitempty"`

	// UID of that namespace, since the operator created it. A namespace of the same name with another
	// UID is not the instance's, also with the same labels and annotations: nothing is written in it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace UID",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`

	// SHA-256 of a random value that only the operator knows until it creates the namespace, which has
	// that value as an annotation. It identifies the namespace until namespaceUID is known.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace Token Hash",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	NamespaceTokenHash string `json:"namespaceTokenHash,omitempty"`

	// Random value, set with instanceId, from which the host names and the {entropy} of the instance follow.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Seed",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	Seed string `json:"seed,omitempty"`

	// UID of the prepared ChallengeInstance whose namespace and objects this instance took over. Its objects carry this UID
	// instead of the instance's own.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Prepared From",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	PreparedFrom types.UID `json:"preparedFrom,omitempty"`

	// The instance that takes over this prepared one. Set once: from then on only that instance gets its namespace and
	// objects, and this resource is deleted.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Claimed By",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	ClaimedBy *InstanceReference `json:"claimedBy,omitempty"`

	// Where players reach the instance: one entry for each port that is not
	// internal. Complete in the phase Running; empty if all are internal, and while
	// the instance is being deleted.
	// +optional
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Services"
	Services []ServiceEndpoint `json:"services,omitempty"`

	// How players connect, in the words of the author: spec.connectionInfo of the Challenge with the
	// addresses of this instance. Empty without such a text, until the addresses are known, and while the
	// instance is being deleted.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Connection Info"
	ConnectionInfo string `json:"connectionInfo,omitempty"`

	// When the operator began to build the instance. Empty while it waits for an
	// earlier instance of its owner, or cannot be built.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Started At"
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// When all pods were ready for the first time. It stays when one fails later:
	// the condition Healthy shows that.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Ready At"
	ReadyAt *metav1.Time `json:"readyAt,omitempty"`

	// When the namespace was gone; the resource itself is deleted right after.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Terminated At"
	TerminatedAt *metav1.Time `json:"terminatedAt,omitempty"`

	// When the timeout begins, if not at startedAt: with CHALLENGE_TIMEOUT_FROM=ready it is readyAt, and until then
	// startedAt plus CHALLENGE_START_DEADLINE.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Timeout From",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	TimeoutFrom *metav1.Time `json:"timeoutFrom,omitempty"`

	// When the instance expires: startedAt (or timeoutFrom) plus spec.timeout, or plus
	// CHALLENGE_MAX_LIFETIME if that is set and shorter, but not after spec.until.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Expires At"
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// The steps that are done, and the steps that are missing and why, in the order in which an
	// instance is built: ChallengeFound, FlagValidation, NamespaceCreated, NetworkPolicyCreated,
	// ServicesCreated, RoutesCreated, DeploymentsCreated, PodsReady, Healthy, UpToDate; and
	// NamespaceDeleted at the end. The first that is False says where it stopped.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// metadata.generation that this status describes. If it is lower than the generation of the
	// resource, the operator has not seen the latest change yet.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// metadata.generation of the Challenge that the instance was started with.
	// A later edit of the Challenge does not change a live instance.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Challenge Generation"
	ChallengeGeneration int64 `json:"challengeGeneration,omitempty"`

	// Name of the Secret in the operator's namespace that keeps the content of the Challenge, and the
	// operator's settings, with which the instance was started and from which it is repaired. The name
	// ends with a hash of the content.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Challenge Revision",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	ChallengeRevision string `json:"challengeRevision,omitempty"`

	// Lifetime of the instance while spec.timeout is empty: the operator's CHALLENGE_INSTANCE_TIMEOUT as it
	// was at the start.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Default Timeout",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	DefaultTimeout *metav1.Duration `json:"defaultTimeout,omitempty"`

	// Label berg.norelect.ch/source of the instance at its start. A later change of the label does not
	// restart pods.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Source",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Source string `json:"source,omitempty"`

	// Digests of the images that rollouts pulled again under the same name, by container.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Images",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	Images map[string]string `json:"images,omitempty"`

	// What a rollout would change, while the Challenge is not the one of the start. Values of
	// variables, commands and probes are not repeated.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Pending Changes"
	PendingChanges *PendingChanges `json:"pendingChanges,omitempty"`

	// Value of the annotation berg.norelect.ch/rollout that was carried out last. A
	// new value of the annotation makes the instance adopt its Challenge as it is.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Rollout"
	ObservedRollout string `json:"observedRollout,omitempty"`
}

// InstanceReference names a ChallengeInstance.
type InstanceReference struct {
	// Namespace of the instance.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace"
	Namespace string `json:"namespace"`
	// Name of the instance.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Name"
	Name string `json:"name"`
	// UID of the instance.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="UID"
	UID types.UID `json:"uid"`
}

// PendingChanges are what a rollout would change in an instance.
type PendingChanges struct {
	// Containers that change. The others continue to run.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Containers"
	Containers []ContainerChange `json:"containers,omitempty"`

	// Whether the network policy changes, which restarts no pod.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Network Policy"
	NetworkPolicy bool `json:"networkPolicy,omitempty"`
}

// ContainerChange is what a rollout would change in one container.
type ContainerChange struct {
	// Hostname of the container.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Name"
	Name string `json:"name"`

	// What happens to its pod. Starts: the container is new; Restarts: its pod is replaced; Ends: the
	// Challenge has it no more.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Effect"
	Effect ChangeEffect `json:"effect"`

	// Fields of the Challenge that changed, for example "image web:1 → web:2", "environment COLOUR" or
	// "command".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Fields"
	Fields []string `json:"fields,omitempty"`
}

// ChangeEffect says what a rollout does to the pod of a container.
//
// +kubebuilder:validation:Enum=Starts;Restarts;Ends
type ChangeEffect string

// The effects of a rollout.
const (
	// EffectStarts: the container is new.
	EffectStarts ChangeEffect = "Starts"
	// EffectRestarts: its pod is replaced.
	EffectRestarts ChangeEffect = "Restarts"
	// EffectEnds: the Challenge no longer has the container.
	EffectEnds ChangeEffect = "Ends"
)

// Phase is a step in the life of an instance.
//
// +kubebuilder:validation:Enum=Pending;Creating;Starting;Running;Terminating;Terminated;Failed
type Phase string

// The phases of an instance.
const (
	// PhasePending: accepted, or waiting in the queue or for an earlier instance of its owner. It has no objects and no expiry.
	PhasePending Phase = "Pending"
	// PhaseCreating: its objects are being created, or its network policy is refused and its pods are stopped.
	PhaseCreating Phase = "Creating"
	// PhaseStarting: every object is in place, and the pods are starting.
	PhaseStarting Phase = "Starting"
	// PhaseRunning: all pods were ready and its addresses served. It stays Running when a pod fails later.
	PhaseRunning Phase = "Running"
	// PhaseTerminating: its namespace is being deleted.
	PhaseTerminating Phase = "Terminating"
	// PhaseTerminated: its namespace is gone. The resource follows.
	PhaseTerminated Phase = "Terminated"
	// PhaseFailed: it cannot be built. It continues by itself when the problem is fixed.
	PhaseFailed Phase = "Failed"
)

// Phases lists every phase, in the order of a life.
var Phases = []Phase{PhasePending, PhaseCreating, PhaseStarting, PhaseRunning, PhaseTerminating, PhaseTerminated, PhaseFailed}

// Cause is why an instance does not run.
//
// +kubebuilder:validation:Enum=NotReadyYet;Queued;OwnerBusy;Frozen;NoCapacity;ImageUnavailable;Crashing;Refused;AddressPending;Invalid
type Cause string

// The causes for which an instance does not run.
const (
	// CauseNotReadyYet: nothing is known to be wrong.
	CauseNotReadyYet Cause = "NotReadyYet"
	// CauseQueued: a limit on the number of instances is reached.
	CauseQueued Cause = "Queued"
	// CauseOwnerBusy: an earlier instance of the same owner goes first.
	CauseOwnerBusy Cause = "OwnerBusy"
	// CauseFrozen: the Challenge is frozen and starts no instance.
	CauseFrozen Cause = "Frozen"
	// CauseNoCapacity: no node has enough free resources for a pod.
	CauseNoCapacity Cause = "NoCapacity"
	// CauseImageUnavailable: an image cannot be pulled.
	CauseImageUnavailable Cause = "ImageUnavailable"
	// CauseCrashing: a container cannot be started, or ends by itself.
	CauseCrashing Cause = "Crashing"
	// CauseRefused: the API server, an admission policy, a quota, a node or an object of
	// another owner is in the way.
	CauseRefused Cause = "Refused"
	// CauseAddressPending: a node port or a route is not there yet.
	CauseAddressPending Cause = "AddressPending"
	// CauseInvalid: the Challenge or the flag cannot be run as it is.
	CauseInvalid Cause = "Invalid"
)

// Causes lists every cause.
var Causes = []Cause{
	CauseNotReadyYet, CauseQueued, CauseOwnerBusy, CauseFrozen, CauseNoCapacity,
	CauseImageUnavailable, CauseCrashing, CauseRefused, CauseAddressPending, CauseInvalid,
}

// StartTimes are when the stages of an instance's start were over, in their order. The first two
// are measured by the operator; the nodes report the others for each pod, in whole seconds, and the
// last pod counts. None lies before the one above it, and a stage that no node reports is left out:
// its time counts to the stage below.
type StartTimes struct {
	// When its namespace was there.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace Created At"
	NamespaceCreatedAt *metav1.MicroTime `json:"namespaceCreatedAt,omitempty"`

	// When all its objects were written.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Objects Written At"
	ObjectsWrittenAt *metav1.MicroTime `json:"objectsWrittenAt,omitempty"`

	// When all its pods had a node.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Scheduled At"
	ScheduledAt *metav1.MicroTime `json:"scheduledAt,omitempty"`

	// When all its pods had their network: from then on their nodes pull missing images.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Sandboxes Created At"
	SandboxesCreatedAt *metav1.MicroTime `json:"sandboxesCreatedAt,omitempty"`

	// When all its images were on their nodes: when the last container was started for the
	// first time, as far as it was seen, which is right after its image is there.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Images Pulled At"
	ImagesPulledAt *metav1.MicroTime `json:"imagesPulledAt,omitempty"`

	// When all its containers were started. Later than imagesPulledAt if one ended and was
	// started again: then it is the attempt that became ready, until then the latest one.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Containers Started At"
	ContainersStartedAt *metav1.MicroTime `json:"containersStartedAt,omitempty"`

	// When all its pods were ready, as their nodes say; status.readyAt is when the operator
	// has seen that.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Pods Ready At"
	PodsReadyAt *metav1.MicroTime `json:"podsReadyAt,omitempty"`
}

// ServiceEndpoint is an address at which players reach a port.
type ServiceEndpoint struct {
	// Name of the port in the Challenge, or <hostname>:<port> for one without a name.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Name"
	Name string `json:"name"`

	// Host name to connect to, below the operator's CHALLENGE_DOMAIN.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Hostname"
	Hostname string `json:"hostname"`

	// Port to connect to: the node port, or the port of the Gateway's listener.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Port"
	Port int32 `json:"port"`

	// Transport protocol: TCP or UDP.
	// +optional
	// +kubebuilder:validation:Enum=TCP;UDP
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Protocol"
	Protocol string `json:"protocol,omitempty"`

	// Application protocol of the port, from the Challenge, for example http or ssh.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Application Protocol"
	AppProtocol string `json:"appProtocol,omitempty"`

	// Whether the connection begins with TLS: true for a publicTlsRoute, and for a publicHttpRoute
	// unless the operator's CHALLENGE_HTTP_TLS is false or its CHALLENGE_HTTP_PORT is 80. Default: false.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="TLS"
	TLS bool `json:"tls,omitempty"`

	// connectAtStart of the port, if it is false: programs that only want to know whether the port is
	// reachable must not connect to it. Default: true.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Connect At Start",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch","urn:alm:descriptor:com.tectonic.ui:advanced"}
	ConnectAtStart *bool `json:"connectAtStart,omitempty"`

	// The whole address in one text, to give to a player: https:// or http:// for a browser, else
	// tls://, tcp:// or udp:// with host name and port, as for ncat. A port that is the scheme's own
	// is left out.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="URL",xDescriptors={"urn:alm:descriptor:org.w3:link"}
	URL string `json:"url,omitempty"`
}

// The conditions of an instance.
const (
	// ConditionChallengeFound: the Challenge exists and can be run.
	ConditionChallengeFound = "ChallengeFound"
	// ConditionFlagValidation: a flag is there when the Challenge needs one.
	ConditionFlagValidation = "FlagValidation"
	// ConditionAdmitted: no limit keeps the instance from starting. Only instances have it
	// that were started, or had to wait, while there was a limit.
	ConditionAdmitted = "Admitted"
	// ConditionNamespaceCreated: the namespace exists and is this instance's.
	ConditionNamespaceCreated = "NamespaceCreated"
	// ConditionNetworkPolicyCreated: the network policy is in place.
	ConditionNetworkPolicyCreated = "NetworkPolicyCreated"
	// ConditionServicesCreated: all Services are in place, and those for players lead to pods.
	ConditionServicesCreated = "ServicesCreated"
	// ConditionRoutesCreated: all routes are in place, and their Gateway serves them.
	ConditionRoutesCreated = "RoutesCreated"
	// ConditionDeploymentsCreated: all Deployments are in place.
	ConditionDeploymentsCreated = "DeploymentsCreated"
	// ConditionPodsReady: all pods were ready once.
	ConditionPodsReady = "PodsReady"
	// ConditionHealthy: all pods of a running instance are ready now, and its addresses are served.
	ConditionHealthy = "Healthy"
	// ConditionNamespaceDeleted: the namespace is gone.
	ConditionNamespaceDeleted = "NamespaceDeleted"
	// ConditionUpToDate: the instance runs the current version of the Challenge.
	ConditionUpToDate = "UpToDate"
	// ConditionReady: the instance is Running and Healthy. Tools that wait, such as kubectl wait, go by it.
	ConditionReady = "Ready"
	// ConditionStalled exists, and is True, only while a person must act: the instance is Failed, or its deletion is
	// blocked.
	ConditionStalled = "Stalled"
)

// BuildConditions are the conditions of the steps that create an instance, in the order of the steps.
// While one of them is False, the later steps wait.
var BuildConditions = []string{
	ConditionChallengeFound, ConditionFlagValidation, ConditionAdmitted, ConditionNamespaceCreated,
	ConditionNetworkPolicyCreated, ConditionServicesCreated, ConditionRoutesCreated, ConditionDeploymentsCreated,
}

// ProblemConditions are the conditions whose status False is a problem of the instance, the first
// problem first. Others, such as UpToDate and NamespaceDeleted, are False for healthy instances, too.
var ProblemConditions = append(BuildConditions[:len(BuildConditions):len(BuildConditions)], ConditionPodsReady, ConditionHealthy)

// The reasons of conditions and events.
const (
	// ReasonFound: the Challenge exists and can be run.
	ReasonFound = "Found"
	// ReasonChallengeMissing: the Challenge does not exist. A live instance keeps running, unless CHALLENGE_WITHDRAWAL_POLICY is
	// Stop.
	ReasonChallengeMissing = "ChallengeMissing"
	// ReasonReferenceNotAllowed: CHALLENGE_REF_POLICY does not let this namespace use that Challenge.
	ReasonReferenceNotAllowed = "ReferenceNotAllowed"
	// ReasonNamespaceNotAllowed: CHALLENGE_INSTANCE_NAMESPACES does not name the namespace of the instance.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonNothingToRun: the Challenge has no containers.
	ReasonNothingToRun = "NothingToRun"
	// ReasonInvalidChallenge: the message names each wrong field of the Challenge.
	ReasonInvalidChallenge = "InvalidChallenge"
	// ReasonNoSuitableNode: a container has sandbox: nested, and no node supports user namespaces.
	ReasonNoSuitableNode = "NoSuitableNode"
	// ReasonFlagProvided: the instance has a flag that its Challenge needs.
	ReasonFlagProvided = "FlagProvided"
	// ReasonFlagNotNeeded: the Challenge needs no flag.
	ReasonFlagNotNeeded = "FlagNotNeeded"
	// ReasonFlagMissing: the Challenge needs spec.flag of the instance.
	ReasonFlagMissing = "FlagMissing"
	// ReasonInvalidFlag: the flag is too long, or has a character that its container cannot get.
	ReasonInvalidFlag = "InvalidFlag"
	// ReasonQueued: a limit is reached, which the message names. The timeout has not begun.
	ReasonQueued = "Queued"
	// ReasonAdmitted: the limits allowed the start.
	ReasonAdmitted = "Admitted"
	// ReasonCreating: the instance was started a moment ago.
	ReasonCreating = "Creating"
	// ReasonCreated: the objects of the step are in place.
	ReasonCreated = "Created"
	// ReasonNotEnforced: the network policies are in place, and the cluster ignores them. Their condition is True.
	ReasonNotEnforced = "NotEnforced"
	// ReasonNotNeeded: the step has no objects.
	ReasonNotNeeded = "NotNeeded"
	// ReasonWaiting: an earlier step comes first, or a deleted namespace must be gone.
	ReasonWaiting = "Waiting"
	// ReasonNamespaceConflict: a namespace of that name exists and is not the instance's.
	ReasonNamespaceConflict = "NamespaceConflict"
	// ReasonObjectConflict: an object of that name exists and is not the instance's.
	ReasonObjectConflict = "ObjectConflict"
	// ReasonContested: another writer, which the message names, undoes each repair.
	ReasonContested = "Contested"
	// ReasonOwnerBusy: an earlier instance of the same owner goes first.
	ReasonOwnerBusy = "OwnerBusy"
	// ReasonAPINotInstalled: the API server does not serve a kind, which the message names.
	ReasonAPINotInstalled = "APINotInstalled"
	// ReasonRefused: the API server rejects an object or a pod. It is retried.
	ReasonRefused = "Refused"
	// ReasonWriteFailed: the API server could not be reached, or failed. It is retried.
	ReasonWriteFailed = "WriteFailed"
	// ReasonGatewayNotReady: the Gateway, its class or its listener does not exist or is not accepted, or the gate has no ready
	// replica.
	ReasonGatewayNotReady = "GatewayNotReady"
	// ReasonRouteRefused: the controller of the Gateway refuses a route.
	ReasonRouteRefused = "RouteRefused"
	// ReasonRoutePending: the pods are ready, and the Gateway or the gate does not serve a route yet.
	ReasonRoutePending = "RoutePending"
	// ReasonPodUnreached: the pods are ready, and a replica of the gate does not reach one.
	ReasonPodUnreached = "PodUnreached"
	// ReasonNoEndpoints: the pods are ready, and a Service for players leads to none.
	ReasonNoEndpoints = "NoEndpoints"
	// ReasonServiceMissing: a Service for players does not exist, and cannot be created.
	ReasonServiceMissing = "ServiceMissing"
	// ReasonOutOfNodePorts: all node ports of the cluster are in use.
	ReasonOutOfNodePorts = "OutOfNodePorts"
	// ReasonOutOfAddresses: all addresses for Services of the cluster are in use.
	ReasonOutOfAddresses = "OutOfAddresses"
	// ReasonReady: all pods were ready once, or are ready now.
	ReasonReady = "Ready"
	// ReasonStarting: pods are not ready yet, and nothing is known to be wrong.
	ReasonStarting = "Starting"
	// ReasonStartDeadline: the instance was not ready within CHALLENGE_START_DEADLINE. Its pods stay until it expires.
	ReasonStartDeadline = "StartDeadlineExceeded"
	// ReasonPodsNotReady: the instance was ready, and a container no longer is.
	ReasonPodsNotReady = "PodsNotReady"
	// ReasonUpToDate: the instance runs the present Challenge with the present settings.
	ReasonUpToDate = "UpToDate"
	// ReasonChallengeChanged: the Challenge was edited after the start.
	ReasonChallengeChanged = "ChallengeChanged"
	// ReasonConfigurationChanged: settings from which pods are built were changed after the start.
	ReasonConfigurationChanged = "ConfigurationChanged"
	// ReasonImageChanged: a newer instance has got another image under the same name.
	ReasonImageChanged = "ImageChanged"
	// ReasonRevisionMissing: the operator cannot read the content that the instance was started with, and does not repair it.
	ReasonRevisionMissing = "RevisionMissing"
	// ReasonTerminating: the instance is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonDeletionBlocked: something prevents the deletion of the namespace or of the instance. It is retried.
	ReasonDeletionBlocked = "DeletionBlocked"
	// ReasonDeleted: the namespace is gone.
	ReasonDeleted = "Deleted"
	// ReasonLive: the instance is not being deleted.
	ReasonLive = "Live"
	// ReasonFrozen: the Challenge starts no instance, or the instance does not expire.
	ReasonFrozen = "Frozen"
	// ReasonPullSecretMissing: an event: the Secret PULL_SECRET_NAME does not exist. The instance continues without it.
	ReasonPullSecretMissing = "PullSecretMissing"
	// ReasonPullSecretConflict: an event: a Secret of that name exists and is not the operator's. A copy of another name is
	// used.
	ReasonPullSecretConflict = "PullSecretConflict"
	// ReasonNodePortTaken: an event: the node port of a public port has changed.
	ReasonNodePortTaken = "NodePortTaken"
	// ReasonInstanceCreating: an event: the operator begins to build the instance.
	ReasonInstanceCreating = "InstanceCreating"
	// ReasonInstanceReady: an event: all pods were ready for the first time.
	ReasonInstanceReady = "InstanceReady"
	// ReasonInstanceEnding: an event: the instance ends, and the message has the reason.
	ReasonInstanceEnding = "InstanceTerminating"
)

// Finalizer keeps a ChallengeInstance until its namespace is gone.
const Finalizer = "challengeinstance.berg.norelect.ch/finalizer"

// The labels and annotations that the operator writes and reads.
const (
	// LabelManagedBy: ManagedBy, or ManagedByAPI.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelComponent: a value that begins with Component.
	LabelComponent = "app.kubernetes.io/component"
	// LabelChallenge: the name of the Challenge, or the beginning of a longer one and a hash: see AnnotationChallenge.
	LabelChallenge = "berg.norelect.ch/challenge"
	// LabelChallengeNamespace: the namespace of the Challenge.
	LabelChallengeNamespace = "berg.norelect.ch/challenge-namespace"
	// LabelOwnerID: the UUID of the owner.
	LabelOwnerID = "berg.norelect.ch/owner-id"
	// LabelInstanceID: status.instanceId of the instance.
	LabelInstanceID = "berg.norelect.ch/instance-id"
	// LabelContainer: the container of a Deployment or a pod.
	LabelContainer = "berg.norelect.ch/container"
	// LabelHostname: on a route, the part of its host name that cannot be guessed.
	LabelHostname = "berg.norelect.ch/hostname"
	// LabelSource on a ChallengeInstance is the user or team of a platform that it is for. Its
	// namespace, pods and record get it too, and its events name it.
	LabelSource = "berg.norelect.ch/source"

	// LabelWarm on a ConfigMap of the platform API: the platform asks for prepared instances of the Challenge in LabelPrepullChallenge.
	// The value is MIN-MAX, as in spec.warm.
	LabelWarm = "berg.norelect.ch/warm"
	// LabelPrepared on a ChallengeInstance in the operator's namespace, with the UID of its Challenge as value: the operator made
	// it in advance. It has no player, no flag and no expiry.
	LabelPrepared = "berg.norelect.ch/prepared"

	// AnnotationInstanceUID identifies the ChallengeInstance to which an object belongs.
	AnnotationInstanceUID = "berg.norelect.ch/instance-uid"
	// AnnotationNamespaceToken on the namespace of an instance is the value whose SHA-256 is in status.namespaceTokenHash.
	AnnotationNamespaceToken = "berg.norelect.ch/namespace-token"
	// AnnotationInstance names that ChallengeInstance as <namespace>/<name>.
	AnnotationInstance = "berg.norelect.ch/instance"
	// AnnotationChallenge is the full name of the Challenge, which may be longer
	// than the label of that name can be.
	AnnotationChallenge = "berg.norelect.ch/challenge"
	// AnnotationRollout on a ChallengeInstance: a new value makes the instance
	// adopt its Challenge as it is now.
	AnnotationRollout = "berg.norelect.ch/rollout"
	// AnnotationFrozen on a Challenge: none of its new instances starts. On a ChallengeInstance: it
	// does not expire. Its value is when the freeze began, in RFC 3339; any other value counts too.
	AnnotationFrozen = "berg.norelect.ch/frozen"
	// AnnotationCause is on the HTTPRoutes of an instance: the Cause, which the gate explains to players, if it does not run until a person
	// acts, else empty.
	AnnotationCause = "berg.norelect.ch/cause"
	// AnnotationRetriedAt on a Deployment is when Kubernetes' controllers were last made
	// to try again pods that they were refused, in RFC 3339.
	AnnotationRetriedAt = "berg.norelect.ch/retried-at"
	// AnnotationFlagAt on a pod of an instance that was prepared is when the operator had written the flag that the pod
	// waits for, in RFC 3339.
	AnnotationFlagAt = "berg.norelect.ch/flag-at"
	// AnnotationPullSecret on a Deployment is the Secret that its image is pulled with,
	// and the version of the source that this was copied from.
	AnnotationPullSecret = "berg.norelect.ch/pull-secret"

	// AnnotationImage on a pod is the beginning of the digest that the image had when a rollout pulled it once more.
	AnnotationImage = "berg.norelect.ch/image"

	// ManagedBy is the value of LabelManagedBy on every object of an instance.
	ManagedBy = "berg"
	// ManagedByAPI is the value of LabelManagedBy on objects of the platform API.
	ManagedByAPI = "berg-api"
	// ComponentNamespace is the value of LabelComponent on the namespace.
	ComponentNamespace = "challenge"
	// ComponentPod is the value of LabelComponent on the pods.
	ComponentPod = "challenge-pod"
	// ComponentWarm is the value of LabelComponent on the binding in the namespace of a prepared instance.
	ComponentWarm = "challenge-warm"
)
