package v1

import (
	"encoding/json"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Challenge describes a CTF challenge: what players read about it and which
// containers run for each of them. The operator never changes the spec of
// a Challenge; in its status it says whether instances can run, and whether the
// images are on the nodes.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=chall,categories=all
// +kubebuilder:printcolumn:name="Event",type=string,JSONPath=`.spec.event`
// +kubebuilder:printcolumn:name="Category",type=string,JSONPath=`.spec.categories[0]`
// +kubebuilder:printcolumn:name="Author",type=string,JSONPath=`.spec.author`
// +kubebuilder:printcolumn:name="Outbound Traffic",type=boolean,JSONPath=`.spec.allowOutboundTraffic`
// +kubebuilder:printcolumn:name="Hidden Until",type=date,JSONPath=`.spec.hideUntil`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Images",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="ImagesReady")].reason`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:selectablefield:JSONPath=`.spec.event`
// +operator-sdk:csv:customresourcedefinitions:displayName="Challenge",order=1,resources={{ChallengeInstance,v1,""}}
type Challenge struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The description of the challenge for players, and the containers that run for each of them. A
	// Challenge alone runs nothing: a ChallengeInstance that names it does.
	//
	// +optional
	Spec ChallengeSpec `json:"spec,omitempty"`

	// State that the operator observed ahead of players.
	//
	// +optional
	Status ChallengeStatus `json:"status,omitzero"`
}

// ChallengeList is a list of Challenges.
//
// +kubebuilder:object:root=true
type ChallengeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Challenge `json:"items"`
}

// ChallengeSpec is written by an author. Only the containers and allowOutboundTraffic matter to the
// operator; the rest is for the platform that shows the challenge to players.
type ChallengeSpec struct {
	// Title that players see. Default: the name of the Challenge.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Display Name"
	DisplayName string `json:"displayName,omitempty"`

	// Who wrote the challenge, as players see it.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Author"
	Author string `json:"author,omitempty"`

	// Task that players read. May contain HTML, as far as the platform allows it.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Description"
	Description string `json:"description,omitempty"`

	// How players connect, shown instead of the bare addresses, for example
	// "ssh -p {port} ctf@{host}, password ctf". {host}, {port} and {url} are the address of the first port
	// that players reach, {NAME.host}, {NAME.port} and {NAME.url} the address of the port NAME. An edit
	// reaches live instances without a rollout. At most 1024 characters. Default: the addresses.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Connection Info"
	ConnectionInfo string `json:"connectionInfo,omitempty"`

	// Flag of a challenge that has one flag for all players. The operator does
	// not use it: an instance carries its own flag in spec.flag.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Flag",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:password"}
	Flag string `json:"flag,omitempty"`

	// Shape of a flag as players see it, for example "flag{...}".
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Flag Format",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	FlagFormat string `json:"flagFormat,omitempty"`

	// How the platform makes a flag of its own for each instance: "suffix"
	// appends random characters, "leetify" varies the letters.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Dynamic Flag Mode",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:suffix","urn:alm:descriptor:com.tectonic.ui:select:leetify","urn:alm:descriptor:com.tectonic.ui:advanced"}
	DynamicFlagMode DynamicFlagMode `json:"dynamicFlagMode,omitempty"`

	// Time before which the platform hides the challenge from players, as in
	// 2030-01-31T18:00:00Z.
	// +optional
	// +nullable
	// +kubebuilder:validation:Format=date-time
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Hide Until",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	HideUntil string `json:"hideUntil,omitempty"`

	// How hard the challenge is, in the words of the event, for example easy.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Difficulty"
	Difficulty string `json:"difficulty,omitempty"`

	// Categories such as web, pwn or crypto, the main one first.
	// +optional
	// +nullable
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Categories"
	Categories []string `json:"categories,omitempty"`

	// Free tags by which players and authors find the challenge.
	// +optional
	// +nullable
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Tags"
	Tags []string `json:"tags,omitempty"`

	// Event to which the challenge belongs, for example m0unt41n-2030.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Event",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Event string `json:"event,omitempty"`

	// Whether the containers may open connections to the internet. Without it they
	// reach each other and the Gateway only. Default: false.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Allow Outbound Traffic",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	AllowOutboundTraffic bool `json:"allowOutboundTraffic,omitempty"`

	// How many instances of the Challenge may exist at the same time, at least 1. Beyond that an
	// instance waits in Pending until another one is gone, and all instances that were created before
	// it have started. Instances that run are not ended when the number is lowered. Default: no bound
	// but the operator's CHALLENGE_MAX_INSTANCES.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=1
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Max Instances",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	MaxInstances int32 `json:"maxInstances,omitempty"`

	// How many instances are prepared before players ask for one: their pods run, or wait for nothing but the flag. An instance
	// that starts takes over a prepared one of its Challenge. Default: none is prepared.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Warm",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Warm *Warm `json:"warm,omitempty"`

	// Share of the budget of its source, the operator's SOURCE_BUDGET, that one instance takes. 0:
	// nothing. Default: 1.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Cost",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	Cost *int32 `json:"cost,omitempty"`

	// Points that the challenge is always worth, instead of a score that falls
	// with the number of solves.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Static Value",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	StaticValue *float64 `json:"staticValue,omitempty"`

	// Files that players can download. The operator does not use them.
	// +optional
	// +nullable
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Attachments",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Attachments []Attachment `json:"attachments,omitempty"`

	// Containers that run for each instance, at most 16. Each becomes a Deployment
	// of one pod, reachable by the others under its hostname. Without any there is
	// nothing to run: an instance then fails with the reason NothingToRun.
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=hostname
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Containers"
	Containers []Container `json:"containers,omitempty"`

	// Whether the images are pulled at any time on every node that may run them.
	// Needs the operator's IMAGE_PREPULL_LEAD. Default: false, they are pulled so long
	// before hideUntil is over, and not at all if the challenge is not hidden.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Prepull",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch","urn:alm:descriptor:com.tectonic.ui:advanced"}
	Prepull bool `json:"prepull,omitempty"`
}

// ChallengeStatus is the observed state of a Challenge.
type ChallengeStatus struct {
	// Whether instances of the Challenge can run (Accepted, Ready), and whether the images
	// are on every node that may run them (ImagesReady).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// metadata.generation to which Accepted and Ready refer. If it is lower than the generation of the
	// resource, the operator has not seen the latest change yet.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ChallengeConditionAccepted: instances of the Challenge can run, as far as its spec and the nodes show.
const ChallengeConditionAccepted = "Accepted"

// The reasons of the condition Accepted and of its events, in addition to ReasonInvalidChallenge and
// ReasonNoSuitableNode.
const (
	// ChallengeAccepted: instances can run. The message lists probable mistakes.
	ChallengeAccepted = "Accepted"
	// ChallengeProbableMistake: an event, and no reason of the condition: the spec is valid and probably not as intended.
	ChallengeProbableMistake = "ProbableMistake"
)

// ChallengeConditionImagesReady: the images of a Challenge are on every node that may run them.
const ChallengeConditionImagesReady = "ImagesReady"

// The reasons of the condition ImagesReady, in addition to ReasonNothingToRun. The reasons for a pull
// that has ended are also the reasons of events.
const (
	// ImagesScheduled: pulls begin later, and the message says when.
	ImagesScheduled = "Scheduled"
	// ImagesPulling: the message counts the pulls.
	ImagesPulling = "Pulling"
	// ImagesPulled: every image is on every node that may run it.
	ImagesPulled = "Pulled"
	// ImagesPullFailed: a node could not pull an image, or the API server refuses a pod that pulls.
	ImagesPullFailed = "PullFailed"
	// ImagesNoNode: no node may run an image.
	ImagesNoNode = "NoNode"
	// ImagesTimeIsOver: hideUntil came before all was pulled. Instances pull the rest.
	ImagesTimeIsOver = "TimeIsOver"
)

// ChallengeConditionWarm: a prepared instance is ready for the next player. A Challenge without spec.warm does not have it.
const ChallengeConditionWarm = "Warm"

// The reasons of the condition Warm, in addition to ReasonFrozen and ReasonInvalidChallenge.
const (
	// WarmReady: the next player gets a prepared instance.
	WarmReady = "Prepared"
	// WarmPreparing: instances are being prepared. The message says what the first one waits for.
	WarmPreparing = "Preparing"
	// WarmLimited: a limit leaves none: max, maxInstances or CHALLENGE_WARM_MAX_INSTANCES.
	WarmLimited = "LimitReached"
	// WarmNoCapacity: pods of players find no node, and go first.
	WarmNoCapacity = "PlayersNeedCapacity"
	// WarmDisabled: CHALLENGE_WARM_MAX_INSTANCES is 0.
	WarmDisabled = "Disabled"
)

// The labels and annotations of the objects that pull the images of a Challenge, in addition to the labels and
// annotations of every object.
const (
	// PrepullLabel on a pod is the name of the Deployment that it is of.
	PrepullLabel = "berg.norelect.ch/pull"
	// PrepullAnnotationImage, PrepullAnnotationNode and PrepullAnnotationRuntimeClass on a Deployment
	// are the image that it pulls, the node, and the RuntimeClass of the pods that need it.
	PrepullAnnotationImage        = "berg.norelect.ch/pull-image"
	PrepullAnnotationNode         = "berg.norelect.ch/pull-node"
	PrepullAnnotationRuntimeClass = "berg.norelect.ch/pull-runtime-class"

	// LabelPrepullChallenge on a ConfigMap of ManagedByAPI asks for the images of a Challenge of its namespace, as
	// spec.prepull does. Its value is the Challenge's name, or the beginning of a longer one and a hash.
	LabelPrepullChallenge = "berg.norelect.ch/prepull-challenge"

	// ComponentPrepull is the value of LabelComponent on the namespace in which images are pulled, and
	// on the objects in it.
	ComponentPrepull = "challenge-prepull"
)

// DynamicFlagMode names a way to make a flag for each instance.
//
// An enum of a schema refuses null, which every optional field must accept; so
// this and the other enumerations are rules.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self in ['suffix','leetify']",message="must be suffix or leetify"
type DynamicFlagMode string

// Attachment is a file that players can download. The operator does not use it.
type Attachment struct {
	// Name under which players save the file.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="File Name"
	FileName string `json:"fileName,omitempty"`
	// Address of the file, absolute or relative to the platform.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Download URL"
	DownloadURL string `json:"downloadUrl,omitempty"`
	// Container image that holds the file, instead of downloadUrl.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Download Image"
	DownloadImage string `json:"downloadImage,omitempty"`
	// Name of the pull secret for downloadImage.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Download Image Pull Secret",xDescriptors={"urn:alm:descriptor:io.kubernetes:Secret"}
	DownloadImagePullSecret string `json:"downloadImagePullSecret,omitempty"`
	// Whether downloadImage comes from a registry without TLS. Default: false.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Insecure Registry",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	DownloadImageInsecure bool `json:"downloadImageInsecure,omitempty"`
}

// Container says which image runs, how players reach it, and how it gets the flag.
type Container struct {
	// Name of the container and its host name for the other containers of the
	// instance: lower-case letters, digits and dashes, a letter first, at most
	// 53 characters (the Service "<hostname>-node-port" must still fit into 63).
	// +required
	// +kubebuilder:validation:MaxLength=53
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-z]([-a-z0-9]*[a-z0-9])?$')`,message="hostname must have only lower-case letters, digits and dashes, begin with a letter, and not end with a dash, for example web"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Hostname"
	Hostname string `json:"hostname"`

	// Container image to run, for example ghcr.io/example/guestbook:1. A private one
	// needs the operator's PULL_SECRET_NAME.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image"
	Image string `json:"image"`

	// When nodes pull the image: "Always" at every start of a container, so that a new
	// image under the same tag reaches new instances, or "IfNotPresent". Where the
	// operator's CHALLENGE_IMAGE_PULL_POLICY is Never, that counts. Default:
	// CHALLENGE_IMAGE_PULL_POLICY (IfNotPresent).
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image Pull Policy",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Always","urn:alm:descriptor:com.tectonic.ui:select:IfNotPresent","urn:alm:descriptor:com.tectonic.ui:advanced"}
	ImagePullPolicy ImagePullPolicy `json:"imagePullPolicy,omitempty"`

	// Program to run in place of the image's ENTRYPOINT, each word an item of its own,
	// for example [python3, app.py], or [sh, -c, "a && b"] for a command line of a
	// shell. $(NAME) is not expanded. The image's CMD is not used then. At most 256
	// words. Default: the image's ENTRYPOINT.
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=65536
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Command",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Command []string `json:"command,omitempty"`

	// Arguments of the program in place of the image's CMD, each an item of its own.
	// $(NAME) is not expanded. At most 256. Default: the image's CMD, or none with
	// command.
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=65536
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Arguments",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Args []string `json:"args,omitempty"`

	// Environment variables, name to value. A value may be a string, a number or a
	// boolean. Endpoints (<PORT_NAME>_ENDPOINT), CHALLENGE_NAMESPACE and the flag
	// are added, and replace a variable of the same name. At most 256, and 64 KiB
	// together with their names.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:MaxProperties=256
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Environment"
	Environment map[string]EnvironmentValue `json:"environment,omitempty"`

	// When the container counts as ready, as in a pod. An instance is Running when
	// all its containers were ready. It must not name a host. Default: as soon as the
	// first public TCP port accepts a connection; without one, as soon as the container
	// runs.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Readiness Probe",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	ReadinessProbe *corev1.Probe `json:"readinessProbe,omitempty"`

	// When the container is restarted although it runs, as in a pod. It must not name a
	// host. Default: it is restarted only when it ends.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Liveness Probe",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	LivenessProbe *corev1.Probe `json:"livenessProbe,omitempty"`

	// Resources reserved for the container, whether it uses them or not. Each of
	// the two that is absent gets the operator's default, CHALLENGE_CPU_REQUEST
	// (100m) or CHALLENGE_MEMORY_REQUEST (128Mi), lowered to the limit if that is
	// smaller.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resource Requests",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	ResourceRequests *Resources `json:"resourceRequests,omitempty"`

	// Most that the container may use: above the CPU limit it is slowed down,
	// above the memory limit it is killed. Each of the two that is absent gets the
	// operator's default, CHALLENGE_CPU_LIMIT (1000m) or CHALLENGE_MEMORY_LIMIT
	// (512Mi).
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resource Limits",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	ResourceLimits *Resources `json:"resourceLimits,omitempty"`

	// Size of /dev/shm, for example "1Gi" for a browser or a database. Its content counts to the
	// memory limit, which it must not exceed. Default: half of the memory limit, at least 64Mi.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Shared Memory",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	SharedMemory *Amount `json:"sharedMemory,omitempty"`

	// Ports on which the container listens, at most 32, and 128 in all containers,
	// 16 of them publicPort. Number and protocol together must be unique. Without
	// ports the other containers reach the container by its hostname, on every port on
	// which it listens, and nothing else does.
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Ports"
	Ports []Port `json:"ports,omitempty"`

	// How the instance's flag reaches this container: exactly one of env, content
	// and executable. Default: not at all.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Dynamic Flag"
	DynamicFlag *DynamicFlag `json:"dynamicFlag,omitempty"`

	// Linux capabilities in addition to the container runtime's default, for example NET_ADMIN, with
	// or without the prefix CAP_. The operator's CHALLENGE_ALLOWED_CAPABILITIES lists the allowed
	// ones. A capability that the Pod Security Standard "baseline" forbids makes the instance's
	// namespace "privileged".
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^[A-Z][A-Z0-9_]*$')`,message="a capability must have only upper-case letters, digits and underscores, for example NET_ADMIN"
	// +kubebuilder:validation:items:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Additional Capabilities",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	AdditionalCapabilities []string `json:"additionalCapabilities,omitempty"`

	// "nested" if the programs of the image make a sandbox of their own, as nsjail,
	// pwn.red/jail and bubblewrap do: the container runs in a user namespace, in which
	// also programs without capabilities may make namespaces and mount file systems.
	// It needs nodes that the administrator prepared, and the operator's
	// CHALLENGE_NESTED_SECCOMP_PROFILE. The instance's namespace gets the Pod Security
	// Standard "privileged". Default: programs can make no namespaces.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Sandbox",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:nested","urn:alm:descriptor:com.tectonic.ui:advanced"}
	Sandbox Sandbox `json:"sandbox,omitempty"`

	// RuntimeClass of the pod, for example gvisor. Default: the operator's
	// CHALLENGE_RUNTIME_CLASS_NAME; if that is empty, the cluster's.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Runtime Class Name",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	RuntimeClassName string `json:"runtimeClassName,omitempty"`

	// Most that the pod may send, in bits per second from 1k to 1P, for example
	// 10M. Default: the operator's CHALLENGE_EGRESS_BANDWIDTH (10M).
	// +optional
	// +nullable
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^$|^[0-9]+(\.[0-9]+)?([kMGTP]i?)?$')`,message="egressBandwidth must be a number of bits per second, for example 10M"
	// +kubebuilder:validation:MaxLength=32
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Egress Bandwidth",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	EgressBandwidth string `json:"egressBandwidth,omitempty"`

	// Most that the pod may receive, in bits per second from 1k to 1P, for example
	// 10M. Default: the operator's CHALLENGE_INGRESS_BANDWIDTH (10M).
	// +optional
	// +nullable
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^$|^[0-9]+(\.[0-9]+)?([kMGTP]i?)?$')`,message="ingressBandwidth must be a number of bits per second, for example 10M"
	// +kubebuilder:validation:MaxLength=32
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Ingress Bandwidth",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	IngressBandwidth string `json:"ingressBandwidth,omitempty"`
}

// EnvironmentValue is the value of an environment variable: a string as it is,
// a number or boolean in its JSON form, nothing (null) as the empty string.
type EnvironmentValue struct {
	raw json.RawMessage
}

// StringValue returns the EnvironmentValue of a string. It is written as a string, also if its text looks like a number.
func StringValue(s string) EnvironmentValue {
	raw, _ := json.Marshal(s) // a string always has a JSON form
	return EnvironmentValue{raw: raw}
}

// Text returns the value as a container sees it. It fails for a list or an
// object; the error does not repeat the value.
func (v EnvironmentValue) Text() (string, error) {
	if len(v.raw) == 0 || string(v.raw) == "null" {
		return "", nil
	}
	switch v.raw[0] {
	case '"':
		var s string
		if err := json.Unmarshal(v.raw, &s); err != nil {
			return "", err
		}
		return s, nil
	case '{', '[':
		return "", errors.New("must be a string, a number or a boolean")
	default:
		return string(v.raw), nil
	}
}

// MarshalJSON returns the value as it was given. So a number keeps its digits, and a rewritten object has no other content. The
// zero value is null.
func (v EnvironmentValue) MarshalJSON() ([]byte, error) {
	if len(v.raw) == 0 {
		return []byte("null"), nil
	}
	return v.raw, nil
}

// UnmarshalJSON keeps any JSON value; Text judges it. An object that is wrong can still be read, so that its error can be
// reported.
func (v *EnvironmentValue) UnmarshalJSON(data []byte) error {
	v.raw = append(json.RawMessage(nil), data...)
	return nil
}

// DeepCopyInto copies the value. The copy shares no bytes with it.
func (v *EnvironmentValue) DeepCopyInto(out *EnvironmentValue) {
	out.raw = append(json.RawMessage(nil), v.raw...)
}

// Resources are amounts of CPU time and memory.
type Resources struct {
	// CPU time in cores, for example "0.5", or "500m" for the same in
	// thousandths. Default: see the field around it.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="CPU"
	CPU *Amount `json:"cpu,omitempty"`
	// Memory in bytes, for example "256Mi". Default: see the field around it.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Memory"
	Memory *Amount `json:"memory,omitempty"`
}

// Amount is a Kubernetes quantity as the author wrote it. A binary suffix may
// also be written small, as in 100mi: there is only one thing it can mean.
//
// It is kept as text because a quantity that cannot be parsed, stored under
// another schema, would otherwise make every Challenge of the cluster unreadable.
//
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPEkmgtpe]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`
type Amount string

// Quantity parses the amount. An amount that the schema refuses, of an older schema or a file, is an error.
func (a Amount) Quantity() (resource.Quantity, error) {
	text := string(a)
	if n := len(text); n > 1 && text[n-1] == 'i' {
		text = text[:n-2] + strings.ToUpper(text[n-2:n-1]) + "i"
	}
	return resource.ParseQuantity(text)
}

// UnmarshalJSON accepts a number as well as a string. A number keeps its digits. Other values are kept as text, and Quantity
// refuses them.
func (a *Amount) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		*a = Amount(text)
		return nil
	}
	*a = Amount(data)
	return nil
}

// Port has number, protocol and audience of one port of a container.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || !(self.type in ['publicHttpRoute','publicTlsRoute']) || !has(self.protocol) || !(self.protocol in ['udp','UDP'])",message="a publicHttpRoute or publicTlsRoute needs protocol tcp",fieldPath=".protocol"
type Port struct {
	// Name of the port, for example web. Every container of the instance gets the
	// address of a named port in <NAME>_ENDPOINT: upper case, every character other
	// than A-Z and 0-9 as "_". Two ports must not give the same variable.
	// Default: no name, no variable.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^$|^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')`,message="name of a port must have only letters, digits, dashes, dots and underscores, and begin and end with a letter or a digit, for example web"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Name"
	Name string `json:"name,omitempty"`

	// Number of the port on which the container listens, 1 to 65535.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Port",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number"}
	Port int32 `json:"port"`

	// Transport protocol of the port: tcp or udp, in either case. The two route
	// types need tcp. Default: tcp.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Protocol",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:tcp","urn:alm:descriptor:com.tectonic.ui:select:udp"}
	Protocol Protocol `json:"protocol,omitempty"`

	// Application protocol of the port, for example http or ssh. It is passed on in status.services
	// for clients that choose how to connect; http and https there make an address for browsers.
	// On a port with a route, grpc and h2c make the Gateway speak HTTP/2 to the container, and
	// berg.norelect.ch/proxy-protocol makes berg-gate send the address of each player first.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=63
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Application Protocol"
	AppProtocol string `json:"appProtocol,omitempty"`

	// Who can reach the port. internalPort: the containers of the instance;
	// publicPort: anyone, on a port of every node; publicHttpRoute: anyone, by
	// host name through the HTTP listener of the Gateway; publicTlsRoute:
	// anyone, by host name through its TLS listener. Default: internalPort.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Type",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:internalPort","urn:alm:descriptor:com.tectonic.ui:select:publicPort","urn:alm:descriptor:com.tectonic.ui:select:publicHttpRoute","urn:alm:descriptor:com.tectonic.ui:select:publicTlsRoute"}
	Type PortType `json:"type,omitempty"`

	// Whether the operator and the node connect to a public TCP port before
	// players do. Set false for a program that serves one connection and ends, and for
	// one that opens the port later. Default: true.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Connect At Start",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch","urn:alm:descriptor:com.tectonic.ui:advanced"}
	ConnectAtStart *bool `json:"connectAtStart,omitempty"`
}

// ImagePullPolicy says when nodes pull an image.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self in ['Always','IfNotPresent']",message="must be Always or IfNotPresent"
type ImagePullPolicy string

// Sandbox says which sandbox the programs of a container make.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self in ['nested']",message="must be nested"
type Sandbox string

// SandboxNested is a sandbox within the sandbox of the container.
const SandboxNested Sandbox = "nested"

// Protocol is the transport protocol of a port.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self in ['tcp','udp','TCP','UDP']",message="must be tcp or udp"
type Protocol string

// PortType says who can reach a port.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self in ['internalPort','publicPort','publicHttpRoute','publicTlsRoute']",message="must be internalPort, publicPort, publicHttpRoute or publicTlsRoute"
type PortType string

// The types of a port.
const (
	InternalPort    PortType = "internalPort"
	PublicPort      PortType = "publicPort"
	PublicHTTPRoute PortType = "publicHttpRoute"
	PublicTLSRoute  PortType = "publicTlsRoute"
)

// DynamicFlag says how the instance's flag reaches a container: exactly one of
// env, content and executable.
//
// +kubebuilder:validation:XValidation:rule="[has(self.env) && dyn(self.env) != null, has(self.content) && dyn(self.content) != null, has(self.executable) && dyn(self.executable) != null].filter(set, set).size() == 1",message="set exactly one of env, content and executable"
type DynamicFlag struct {
	// The flag as an environment variable, for example {name: FLAG}.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Environment Variable"
	Env *FlagEnv `json:"env,omitempty"`
	// The flag and a line feed as a read-only file, for example {path: /flag.txt}.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Content"
	Content *FlagFile `json:"content,omitempty"`
	// A static x86-64 program that prints the flag, for example {path: /get_flag}:
	// the prize for code execution. The container drops CAP_DAC_OVERRIDE, so that
	// not even its root can read the program, and runs on amd64 nodes only.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Executable"
	Executable *FlagFile `json:"executable,omitempty"`
	// When the container of a prepared instance (warm) starts. file: before the flag is known. The file appears when a player
	// gets the instance, in a folder that has nothing else: the folder of path hides the folder of the image, and the program
	// must read the file when it needs the flag, not when it starts. For content and executable. Default: the container starts
	// when the flag is known.
	// +optional
	// +nullable
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Late",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Late FlagLate `json:"late,omitempty"`
}

// FlagLate says what of a flag may come after the start of a container.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self == 'file'",message="must be file, or left out"
type FlagLate string

// LateFile: the file with the flag may appear while the container runs.
const LateFile FlagLate = "file"

// Warm is how many instances are prepared.
//
// +kubebuilder:validation:XValidation:rule="!has(self.min) || dyn(self.min) == null || !has(self.max) || dyn(self.max) == null || self.max == 0 || self.min <= self.max",message="min must not be above max"
type Warm struct {
	// How many prepared instances are kept for players to come. 0: none. Each uses as much of the cluster as an
	// instance of a player, and is replaced when it was taken over.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Min",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number"}
	Min int32 `json:"min,omitempty"`
	// Number of instances of the Challenge, of players and prepared ones together, from which on none is prepared. 0 or
	// nothing: no bound but maxInstances.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Max",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number"}
	Max int32 `json:"max,omitempty"`
}

// FlagEnv names the environment variable that holds the flag.
type FlagEnv struct {
	// Name of the environment variable, for example FLAG.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[-._a-zA-Z][-._a-zA-Z0-9]*$')`,message="name of a variable must have only letters, digits, dashes, dots and underscores, and not begin with a digit, for example FLAG"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Name"
	Name string `json:"name"`
}

// FlagFile is a file made from the flag.
type FlagFile struct {
	// Absolute path of the file, for example /home/ctf/flag-{entropy}.txt.
	// "{entropy}" in it becomes 12 hexadecimal digits that stay the same for the
	// life of the instance and that players cannot guess. At most 512 characters, and
	// 255 bytes between two slashes.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(/[^/:]+)+$')`,message="path must be absolute, without a colon, an empty segment or a slash at its end, for example /home/ctf/flag.txt"
	// +kubebuilder:validation:XValidation:rule="!self.split('/').exists(segment, segment == '.' || segment.startsWith('..'))",message="must not contain the segment '.' or a segment that begins with '..'"
	// +kubebuilder:validation:XValidation:rule="!self.replace('{entropy}', '000000000000').matches('[^/]{256}')",message="must not have more than 255 bytes between two slashes, '{entropy}' counting 12"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Path"
	Path string `json:"path"`

	// Permission bits of the file as a number: write 0444 in YAML, 292 in JSON.
	// Default: 0444 for content, 0440 for content with a group, 0111 for an executable.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=511
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Mode",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number"}
	Mode *int32 `json:"mode,omitempty"`

	// Number of the group that owns the file, 1 to 65535, as in /etc/group of the image; its
	// user is root. The program of the container becomes a member, so that with mode 0440 the
	// USER of the image can read the file, and after a change of the user only
	// members of that group. For content alone. Default: the group root.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Group",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number"}
	Group *int64 `json:"group,omitempty"`
}
