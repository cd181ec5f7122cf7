package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Environment is a namespace for the platform. The operator creates the
// namespace, gives the platform's ServiceAccount the rights of one reviewed
// ClusterRole in it, repairs both, and deletes both with the Environment.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=env
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.status.namespaceStatus.resourceName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +operator-sdk:csv:customresourcedefinitions:displayName="Environment",order=3,resources={{Namespace,v1,""},{RoleBinding,v1,""},{Event,v1,""}}
type Environment struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The namespace to create.
	//
	// +required
	Spec EnvironmentSpec `json:"spec"`

	// State that the operator observed.
	//
	// +optional
	Status EnvironmentStatus `json:"status,omitempty"`
}

// EnvironmentList is a list of Environments.
//
// +kubebuilder:object:root=true
type EnvironmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Environment `json:"items"`
}

// EnvironmentSpec is the namespace to create, with its labels and annotations.
type EnvironmentSpec struct {
	// Identifier of the environment: lower-case letters, digits and dashes, 3 to
	// 44 characters, a letter or digit at both ends. The namespace is called
	// <id> followed by the operator's NAMESPACE_SUFFIX (-qdep). Cannot be changed.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-z0-9]([a-z0-9\-]*[a-z0-9])?$')`,message="id must have only lower-case letters, digits and dashes, and begin and end with a letter or a digit, for example team-red"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="id cannot be changed: delete this Environment and create another one"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="ID"
	ID string `json:"id"`

	// Labels of the namespace, in addition to the labels that the operator sets. Each key starts with
	// quix.io/. A label that is removed here is removed from the namespace; labels that other clients
	// set stay. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.startsWith('quix.io/'))",message="every key must start with quix.io/"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k in ['quix.io/managed-by', 'quix.io/environment-id', 'quix.io/environment-name'])",message="quix.io/managed-by, quix.io/environment-id and quix.io/environment-name are set only by the operator"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Labels"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the namespace, in addition to the annotations that the operator sets. Each key
	// starts with quix.io/. An annotation that is removed here is removed from the namespace;
	// annotations that other clients set stay. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.startsWith('quix.io/'))",message="every key must start with quix.io/"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k in ['quix.io/created-by', 'quix.io/environment-resource-name', 'quix.io/environment-uid', 'quix.io/applied-metadata', 'quix.io/plan-checksum', 'quix.io/namespace-token'])",message="quix.io/created-by, quix.io/environment-resource-name, quix.io/environment-uid, quix.io/applied-metadata, quix.io/plan-checksum and quix.io/namespace-token are set only by the operator"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Annotations"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// EnvironmentStatus is the observed state of an environment.
type EnvironmentStatus struct {
	// The phase of the environment. InProgress: it is being created, or waits for
	// an operation that ends by itself; Ready: namespace and binding are in place;
	// Failed: a person must fix the problem in the conditions, and then it
	// continues by itself; Deleting: its binding and namespace are being deleted.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Phase",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	Phase Phase `json:"phase,omitempty"`

	// Describes the phase: the problem, if there is one.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase:reason"}
	Message string `json:"message,omitempty"`

	// metadata.generation that this status describes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// When this status changed last.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Last Updated"
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`

	// The namespace. Its name is kept here and never changes, even if the
	// operator's NAMESPACE_SUFFIX does.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace"
	NamespaceStatus *ResourceStatus `json:"namespaceStatus,omitempty"`

	// UID of the namespace, since the operator created it. A namespace of the same name with another UID is not this
	// Environment's, also with the same labels and annotations: nothing is written in it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace UID",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`

	// SHA-256 of a random value that only the operator knows until it creates the namespace, which has that value as an
	// annotation. It identifies the namespace until namespaceUID is known.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace Token Hash",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	NamespaceTokenHash string `json:"namespaceTokenHash,omitempty"`

	// The RoleBinding in the namespace. Its name is kept here and never changes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Role Binding"
	RoleBindingStatus *ResourceStatus `json:"roleBindingStatus,omitempty"`

	// Which steps are done, which are not, and why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ResourceStatus is the observed state of one object of an environment.
type ResourceStatus struct {
	// Creating: it is being created; Active: it is as it should be; Failed: it is
	// not, the message says why; Deleting: it is being deleted.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Phase"
	Phase ResourcePhase `json:"phase,omitempty"`

	// Describes the phase.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message"
	Message string `json:"message,omitempty"`

	// Name of the object.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Resource Name"
	ResourceName string `json:"resourceName,omitempty"`
}

// Phase is the phase of an environment.
//
// +kubebuilder:validation:Enum=InProgress;Ready;Failed;Deleting
type Phase string

// The phases of an environment.
const (
	// PhaseInProgress: it is being created, or waits for something that ends by itself.
	PhaseInProgress Phase = "InProgress"
	// PhaseReady: namespace and RoleBinding are in place.
	PhaseReady Phase = "Ready"
	// PhaseFailed: a person must fix a problem. It then continues by itself.
	PhaseFailed Phase = "Failed"
	// PhaseDeleting: the RoleBinding is deleted, and then the namespace.
	PhaseDeleting Phase = "Deleting"
)

// Phases lists every phase, in their usual order.
var Phases = []Phase{PhaseInProgress, PhaseReady, PhaseFailed, PhaseDeleting}

// ResourcePhase is the phase of one object of an environment.
//
// +kubebuilder:validation:Enum=Creating;Active;Failed;Deleting
type ResourcePhase string

// The phases of an object.
const (
	ResourceCreating ResourcePhase = "Creating"
	ResourceActive   ResourcePhase = "Active"
	ResourceFailed   ResourcePhase = "Failed"
	ResourceDeleting ResourcePhase = "Deleting"
)

// The conditions of an environment, in the order of the steps. A condition that is False stops the later steps.
const (
	// ConditionNamespaceReady: the namespace exists and belongs to this environment.
	ConditionNamespaceReady = "NamespaceReady"
	// ConditionRoleValidated: the platform's ClusterRole exists, and its holder cannot gain more rights than it lists.
	ConditionRoleValidated = "RoleValidated"
	// ConditionRoleBindingReady: the platform's ServiceAccount is bound to it in
	// the namespace.
	ConditionRoleBindingReady = "RoleBindingReady"
	// ConditionReady: namespace and role binding are in place.
	ConditionReady = "Ready"
	// ConditionStalled: a person must act. It is absent otherwise.
	ConditionStalled = "Stalled"
)

// The reasons of conditions and events.
const (
	// ReasonCreated: the object is in place.
	ReasonCreated = "Created"
	// ReasonWaiting: an earlier condition is False, or a deleted namespace must be gone.
	ReasonWaiting = "Waiting"
	// ReasonContested: another client, which the message names, keeps changing or deleting the object.
	ReasonContested = "Contested"
	// ReasonRefused: the API server refuses the finalizer, the status, or an object.
	ReasonRefused = "Refused"
	// ReasonInvalidEnvironmentID: the ID of a new environment does not match ENVIRONMENT_REGEX.
	ReasonInvalidEnvironmentID = "InvalidEnvironmentID"
	// ReasonNamespaceNotManaged: a namespace of that name exists, and is not managed by the operator.
	ReasonNamespaceNotManaged = "NamespaceNotManaged"
	// ReasonNamespaceOwnershipConflict: it belongs to another Environment, or to none.
	ReasonNamespaceOwnershipConflict = "NamespaceOwnershipConflict"
	// ReasonNamespaceEnvironmentIDMismatch: the Environment is being deleted, and the namespace belongs to another one: it
	// stays.
	ReasonNamespaceEnvironmentIDMismatch = "NamespaceEnvironmentIDMismatch"
	// ReasonNamespaceCreationFailed: the API server refused the new namespace. It is retried.
	ReasonNamespaceCreationFailed = "NamespaceCreationFailed"
	// ReasonNamespaceReconciliationFailed: the API server refused a change of the namespace. It is retried.
	ReasonNamespaceReconciliationFailed = "NamespaceReconciliationFailed"
	// ReasonRoleValid: the ClusterRole grants what it lists, and no way to more.
	ReasonRoleValid = "RoleValid"
	// ReasonRoleMissing: the ClusterRole does not exist.
	ReasonRoleMissing = "RoleMissing"
	// ReasonSecurityViolation: it lets the platform gain more rights. The message names each such rule.
	ReasonSecurityViolation = "SecurityViolation"
	// ReasonAdmissionPolicyMissing: the fence is not in force. The platform gets no new rights, and keeps the old ones.
	ReasonAdmissionPolicyMissing = "AdmissionPolicyMissing"
	// ReasonRoleBindingConflict: a RoleBinding of that name exists, and is not the environment's.
	ReasonRoleBindingConflict = "RoleBindingConflict"
	// ReasonRoleBindingCreationFailed: the API server refused the new RoleBinding. It is retried.
	ReasonRoleBindingCreationFailed = "RoleBindingCreationFailed"
	// ReasonRoleBindingReconciliationFailed: the API server refused a change of the RoleBinding. It is retried.
	ReasonRoleBindingReconciliationFailed = "RoleBindingReconciliationFailed"
	// ReasonRoleBindingDeletionFailed: the API server refused to delete the RoleBinding. Its namespace may take it along.
	ReasonRoleBindingDeletionFailed = "RoleBindingDeletionFailed"
	// ReasonTerminating: the Environment is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonDeletionBlocked: the namespace cannot be deleted, or the deletion waits for an administrator.
	ReasonDeletionBlocked = "DeletionBlocked"
	// ReasonNamespaceCreated: an event: the operator created the namespace.
	ReasonNamespaceCreated = "NamespaceCreated"
	// ReasonRoleBindingCreated: an event: the operator created the RoleBinding.
	ReasonRoleBindingCreated = "RoleBindingCreated"
	// ReasonEnvironmentReady: namespace and RoleBinding are in place.
	ReasonEnvironmentReady = "EnvironmentReady"
)

// Finalizer keeps an Environment until its namespace is gone.
const Finalizer = "quix.io/environment-finalizer"

// The labels and annotations that the operator writes.
const (
	// MetadataPrefix is the beginning of every key that an Environment may set.
	MetadataPrefix = "quix.io/"

	LabelManagedBy       = "quix.io/managed-by"
	LabelEnvironmentID   = "quix.io/environment-id"
	LabelEnvironmentName = "quix.io/environment-name"
	// LabelPlatform identifies the namespaces of the platform, which copies its certificate authorities into them.
	LabelPlatform = "ManagedBy"

	AnnotationCreatedBy    = "quix.io/created-by"
	AnnotationResourceName = "quix.io/environment-resource-name"
	// AnnotationUID identifies the Environment to which an object belongs.
	AnnotationUID = "quix.io/environment-uid"
	// AnnotationApplied records which labels and annotations the operator set, so that a key that is removed from an
	// Environment is removed from its namespace.
	AnnotationApplied = "quix.io/applied-metadata"
	// AnnotationChecksum is the checksum of the object as the operator wrote it, so that it detects that it would write
	// another one.
	AnnotationChecksum = "quix.io/plan-checksum"

	// AnnotationConfirmDeletion on an Environment is "true" when an administrator wants it to be deleted although that was asked for
	// before this operator came, and its CRD is being deleted.
	AnnotationConfirmDeletion = "quix.io/confirm-deletion"
	// AnnotationNamespaceToken on the namespace is the value whose SHA-256 is in status.namespaceTokenHash.
	AnnotationNamespaceToken = "quix.io/namespace-token"

	// ManagedBy is the value of LabelManagedBy and AnnotationCreatedBy on the
	// namespace.
	ManagedBy = "quix-environment-operator"
	// RoleBindingManagedBy is the value of LabelManagedBy on the RoleBinding.
	RoleBindingManagedBy = "environment-operator"
	// Platform is the value of LabelPlatform.
	Platform = "Quix"
)
