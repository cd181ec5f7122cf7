package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ChallengeInstanceRecord is the record of a ChallengeInstance that has ended: why it ended, its
// timeline, how its containers ended and the end of their logs. Only an operator with
// RECORD_RETENTION writes them, into the namespace RECORD_NAMESPACE, and deletes them again. It
// contains no flag, but perhaps input of players.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=cir
// +kubebuilder:printcolumn:name="Instance",type=string,JSONPath=`.spec.instance.name`
// +kubebuilder:printcolumn:name="Challenge",type=string,JSONPath=`.spec.challengeRef.name`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.spec.phase`
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.spec.restarts`
// +kubebuilder:printcolumn:name="Ended",type=date,JSONPath=`.spec.endedAt`
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.ownerId`,priority=1
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source`,priority=1
// +kubebuilder:printcolumn:name="Problem",type=string,JSONPath=`.spec.problem.message`,priority=1
// +kubebuilder:selectablefield:JSONPath=`.spec.ownerId`
// +kubebuilder:selectablefield:JSONPath=`.spec.challengeRef.name`
// +operator-sdk:csv:customresourcedefinitions:displayName="Challenge Instance Record",order=4,resources={{ChallengeInstance,v1,""},{Event,v1,""}}
type ChallengeInstanceRecord struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Data of the instance. Written once, and never changed by the operator.
	//
	// +required
	Spec ChallengeInstanceRecordSpec `json:"spec"`
}

// ChallengeInstanceRecordList is a list of ChallengeInstanceRecords.
//
// +kubebuilder:object:root=true
type ChallengeInstanceRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ChallengeInstanceRecord `json:"items"`
}

// ChallengeInstanceRecordSpec describes an instance that has ended.
type ChallengeInstanceRecordSpec struct {
	// Which instance it was.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Instance"
	Instance RecordedInstance `json:"instance"`

	// The Challenge that it ran.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Challenge"
	ChallengeRef ChallengeReference `json:"challengeRef"`

	// metadata.generation of the Challenge that it was started with; 0 if it never started.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Challenge Generation"
	ChallengeGeneration int64 `json:"challengeGeneration,omitempty"`

	// UUID of the player or team that owned it.
	// +required
	// +kubebuilder:validation:MaxLength=36
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Owner"
	OwnerID string `json:"ownerId"`

	// User or team of the platform that it was for: its label berg.norelect.ch/source. Empty if it came from no platform.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Source"
	Source string `json:"source,omitempty"`

	// Why it ended. Timeout: it expired; UserRequest: the player asked, or a client deleted it
	// without a reason; AdminTermination: an organiser did; ChallengeDeleted: its Challenge was
	// deleted, and CHALLENGE_WITHDRAWAL_POLICY is Stop.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Reason"
	Reason EndReason `json:"reason"`

	// The last phase that it had alive, empty where the operator was restarted after that.
	// Failed: it never could be built, problem says why.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Phase",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	Phase Phase `json:"phase,omitempty"`

	// The problem of the instance at its end: the first of its conditions that was False, or, if none
	// was, the first that was Unknown. Absent if all were True.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Problem"
	Problem *RecordedProblem `json:"problem,omitempty"`

	// Timeline of the instance, earliest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Timeline"
	Timeline []RecordedMoment `json:"timeline,omitempty"`

	// When its deletion began.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Ended At"
	EndedAt metav1.Time `json:"endedAt"`

	// How often its containers were restarted, all together.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Restarts"
	Restarts int32 `json:"restarts,omitempty"`

	// Its containers as they were when it ended, by pod and name. Empty if it had no pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Containers"
	Containers []RecordedContainer `json:"containers,omitempty"`

	// Why containers, or the logs of all of them, are missing. Empty if they are not.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Incomplete"
	Incomplete string `json:"incomplete,omitempty"`
}

// RecordedInstance says which ChallengeInstance it was.
type RecordedInstance struct {
	// Namespace of the ChallengeInstance.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Namespace"
	Namespace string `json:"namespace"`

	// Name of the ChallengeInstance.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Name"
	Name string `json:"name"`

	// UID of the ChallengeInstance, which is the record's name, too.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="UID"
	UID string `json:"uid"`

	// status.instanceId, empty if the instance never started.
	// +optional
	// +kubebuilder:validation:MaxLength=36
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Instance ID"
	InstanceID string `json:"instanceId,omitempty"`
}

// EndReason says why an instance ended.
//
// +kubebuilder:validation:Enum=UserRequest;Timeout;AdminTermination;ChallengeDeleted
type EndReason string

// EndChallengeDeleted: the Challenge was deleted. The other reasons are the values of
// TerminationReason.
const EndChallengeDeleted EndReason = "ChallengeDeleted"

// RecordedProblem is a condition that was not True.
type RecordedProblem struct {
	// Type of the condition, for example PodsReady.
	// +required
	// +kubebuilder:validation:MaxLength=316
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Condition"
	Condition string `json:"condition"`

	// Its reason, for example CrashLoopBackOff.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Reason"
	Reason string `json:"reason"`

	// Its message, without the flag.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Message"
	Message string `json:"message,omitempty"`

	// Since when it had that status, to the second.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Since"
	Since *metav1.Time `json:"since,omitempty"`
}

// RecordedMoment is a step in the life of an instance.
type RecordedMoment struct {
	// The moment: Created, NamespaceCreated, Started, Running, Expired or Ended.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Moment"
	Moment string `json:"moment"`

	// When, to the second.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="At"
	At metav1.Time `json:"at"`
}

// RecordedContainer is a container as it was when its instance ended.
type RecordedContainer struct {
	// Name of the container, which is its hostname in the Challenge.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Name"
	Name string `json:"name"`

	// Name of its pod.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Pod"
	Pod string `json:"pod"`

	// Image that it ran, as its Challenge had named it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image"
	Image string `json:"image,omitempty"`

	// Node that it ran on, empty if none was found.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Node"
	Node string `json:"node,omitempty"`

	// Running, Waiting or Terminated, and the phase of the pod if it had no containers yet, for
	// example Pending.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="State"
	State string `json:"state"`

	// Whether it was ready.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Ready"
	Ready bool `json:"ready,omitempty"`

	// Why it waited, for example CrashLoopBackOff or ImagePullBackOff; empty if it did not.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Waiting For"
	WaitingFor string `json:"waitingFor,omitempty"`

	// The same in words, without the flag.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Message"
	Message string `json:"message,omitempty"`

	// How often it was restarted.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Restarts"
	Restarts int32 `json:"restarts,omitempty"`

	// How it ended last; absent if it never did.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Exit"
	Exit *RecordedExit `json:"exit,omitempty"`

	// The end of its log, at most 64 KiB, less where many containers wrote a lot. Flags are replaced
	// by <flag>, and control characters by �. After a restart it begins with the end of the previous
	// run's log.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Log"
	Log string `json:"log,omitempty"`

	// Whether it wrote more than log has.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Log Cut"
	LogCut bool `json:"logCut,omitempty"`

	// Why there is no log, empty if there is one or nothing was written.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Log Missing"
	LogMissing string `json:"logMissing,omitempty"`
}

// RecordedExit is how a container ended.
type RecordedExit struct {
	// Exit code; 128 and more: it was ended by the signal of that number less 128.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Code"
	Code int32 `json:"code"`

	// For example Completed, Error or OOMKilled.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Reason"
	Reason string `json:"reason,omitempty"`

	// When its last run began; absent where the node did not report it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Started At"
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// When its last run ended; absent where the node did not report it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Finished At"
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}

const (
	// ComponentRecord is the value of LabelComponent on the records of instances.
	ComponentRecord = "record"
	// AnnotationDeleteAt on a record is when the operator deletes it, in RFC 3339. Who wants to
	// keep one longer writes another time.
	AnnotationDeleteAt = "berg.norelect.ch/delete-at"
	// AnnotationRecordSize on a record is its size in bytes as the operator wrote it.
	AnnotationRecordSize = "berg.norelect.ch/record-size"
)
