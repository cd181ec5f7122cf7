package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Deployment builds an Application and records the result. It is in the namespace of its
// Application and is called project-<project>-app-<app>-deployment-<deployment>-kibaship-com.
// It has nothing to do with Deployments of apps/v1: use the name kdeploy with kubectl.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=deployments,shortName=kdeploy,categories=kibaship
// +kubebuilder:printcolumn:name="Application",type=string,JSONPath=`.spec.applicationRef.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Current Run",type=string,JSONPath=`.status.currentPipelineRun.name`
// +kubebuilder:printcolumn:name="Last Success",type=string,JSONPath=`.status.lastSuccessfulRun.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:selectablefield:JSONPath=`.spec.applicationRef.name`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.matches('^project-[a-z0-9]([^.]*[a-z0-9])?-app-[a-z0-9]([^.]*[a-z0-9])?-deployment-[a-z0-9]([^.]*[a-z0-9])?-kibaship-com$')",optionalOldSelf=true,message="metadata.name must be project-<project>-app-<app>-deployment-<deployment>-kibaship-com, with lower-case letters, digits and dashes: ^project-[a-z0-9]([a-z0-9-]*[a-z0-9])?-app-[a-z0-9]([a-z0-9-]*[a-z0-9])?-deployment-[a-z0-9]([a-z0-9-]*[a-z0-9])?-kibaship-com$"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.spec.applicationRef.name.endsWith('-kibaship-com') && self.metadata.name.startsWith(self.spec.applicationRef.name.substring(0, self.spec.applicationRef.name.size() - 13) + '-deployment-')",optionalOldSelf=true,message="metadata.name must begin with project-<project>-app-<app>-deployment-, with project and app as in spec.applicationRef.name, which is project-<project>-app-<app>-kibaship-com"
// +operator-sdk:csv:customresourcedefinitions:displayName="KibaShip Deployment",order=9,resources={{Application,v1alpha1,""}}
type Deployment struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The build: an Application, and its commit.
	//
	// +required
	Spec DeploymentSpec `json:"spec"`

	// State that the operator observed.
	//
	// +optional
	Status DeploymentStatus `json:"status,omitempty"`
}

// DeploymentList is a list of Deployments.
//
// +kubebuilder:object:root=true
type DeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Deployment `json:"items"`
}

// DeploymentSpec describes a build. A change starts a new run.
type DeploymentSpec struct {
	// The Application, in the namespace of this Deployment.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Application Ref"
	ApplicationRef LocalReference `json:"applicationRef"`

	// For an Application of type GitRepository: which commit is built. Default: the newest of
	// the Application's branch when the run starts.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Git Repository"
	GitRepository *DeploymentSource `json:"gitRepository,omitempty"`
}

// DeploymentSource says which commit is built.
//
// +kubebuilder:validation:XValidation:rule="has(self.commitSHA) || has(self.branch) || has(self.tag)",message="spec.gitRepository needs commitSHA, branch or tag; leave spec.gitRepository out to build the newest commit of the Application's branch"
// +kubebuilder:validation:XValidation:rule="!has(self.tag) || !has(self.commitSHA) && !has(self.branch)",message="spec.gitRepository.tag cannot be used together with commitSHA or branch: a tag names a commit"
type DeploymentSource struct {
	// SHA of the commit, in full. Default: the newest commit of branch, or the commit of tag, when the run starts.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9a-f]{40}|[0-9a-f]{64})$')`,message="commitSHA must be the full SHA of a commit: 40 or 64 hexadecimal digits in lower case"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Commit SHA"
	CommitSHA string `json:"commitSHA,omitempty"`

	// Branch whose newest commit is built. Default: the branch of the Application. Together with commitSHA it is a note for
	// people: the commit is built, whichever branch has it.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-zA-Z0-9_][a-zA-Z0-9._/+@#-]*$')`,message="branch must be the name of a branch, for example main or feature/login"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'[.][.]|//|/[.]|[.]lock(/|$)|[./]$')`,message="branch must be a name that git accepts: without .. and //, and without a dot, a slash or .lock at the end of a part"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Branch"
	Branch string `json:"branch,omitempty"`

	// Git tag whose commit is built.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-zA-Z0-9_][a-zA-Z0-9._/+@#-]*$')`,message="tag must be the name of a git tag, for example v1.2.0"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'[.][.]|//|/[.]|[.]lock(/|$)|[./]$')`,message="tag must be a name that git accepts: without .. and //, and without a dot, a slash or .lock at the end of a part"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Tag"
	Tag string `json:"tag,omitempty"`
}

// DeploymentStatus is the observed state of a Deployment.
type DeploymentStatus struct {
	// Initializing: nothing runs yet, the conditions say why; Running: an image is being built;
	// Succeeded, Failed: the result of the last run; Waiting: there is nothing to do until the spec
	// changes, or until a condition in the message is met.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Phase",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	Phase DeploymentPhase `json:"phase,omitempty"`

	// The phase in words: the problem, if there is one.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase:reason"}
	Message string `json:"message,omitempty"`

	// metadata.generation that this status describes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Stands for the value of the annotation run-again that counts for this generation: the last
	// one that it had, also where it is taken off.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Run Again"
	RunAgain string `json:"runAgain,omitempty"`

	// The run that was started last.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Current Pipeline Run"
	CurrentPipelineRun *PipelineRunStatus `json:"currentPipelineRun,omitempty"`

	// The last run that built an image.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Last Successful Run"
	LastSuccessfulRun *PipelineRunStatus `json:"lastSuccessfulRun,omitempty"`

	// The image of the last successful run, or the image that a DockerImage refers to.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Built Image"
	BuiltImage *BuiltImage `json:"builtImage,omitempty"`

	// The last five runs, the newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Run History"
	RunHistory []PipelineRunStatus `json:"runHistory,omitempty"`

	// The steps that are done, and the steps that are missing and why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PipelineRunStatus is the observed state of one run.
type PipelineRunStatus struct {
	// Name of the PipelineRun.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Name"
	Name string `json:"name"`

	// Namespace of the PipelineRun.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace"
	Namespace string `json:"namespace,omitempty"`

	// State of the run: Running, Succeeded or Failed.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Phase"
	Phase DeploymentPhase `json:"phase,omitempty"`

	// Identifies the source that the run was started to build: the repository with its branch, tag or commit, and how
	// it is built.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Source"
	Source string `json:"source,omitempty"`

	// When the run started.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Start Time"
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// When the run ended.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Completion Time"
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// SHA of the commit that was built.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Commit SHA"
	CommitSHA string `json:"commitSha,omitempty"`

	// Reference of the image that was built.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Image"
	Image string `json:"image,omitempty"`

	// Size of that image in bytes, as the registry stores it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Image Bytes"
	ImageBytes int64 `json:"imageBytes,omitempty"`

	// Why the run failed, why it waits, or what it warns of.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message"
	Message string `json:"message,omitempty"`
}

// BuiltImage is an image in a registry.
type BuiltImage struct {
	// Reference of the image with its digest, by which it is to be run.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Reference"
	Reference string `json:"reference"`

	// Digest of the image.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Digest"
	Digest string `json:"digest,omitempty"`

	// Tag of the image.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Tag"
	Tag string `json:"tag,omitempty"`

	// When the image was built, or resolved.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Built At"
	BuiltAt *metav1.Time `json:"builtAt,omitempty"`

	// SHA of the commit that was built.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Commit SHA"
	CommitSHA string `json:"commitSha,omitempty"`

	// The request that the image was resolved for: the generation of the Deployment, and a hash of its
	// annotation run-again. Empty where it was built.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Request"
	Request string `json:"request,omitempty"`
}

// DeploymentPhase is a step in the life of a Deployment, or of one of its runs.
//
// +kubebuilder:validation:Enum=Initializing;Running;Succeeded;Failed;Waiting
type DeploymentPhase string

// The phases of a Deployment.
const (
	// DeploymentInitializing: nothing runs yet: the Application is not ready.
	DeploymentInitializing DeploymentPhase = "Initializing"
	// DeploymentRunning: an image is being built.
	DeploymentRunning DeploymentPhase = "Running"
	// DeploymentSucceeded: the last build succeeded less than DEPLOYMENT_RESULT_TIME ago.
	DeploymentSucceeded DeploymentPhase = "Succeeded"
	// DeploymentFailed: the last build failed less than DEPLOYMENT_RESULT_TIME ago.
	DeploymentFailed DeploymentPhase = "Failed"
	// DeploymentWaiting: there is nothing to do until the spec changes, or until what the message names is there.
	DeploymentWaiting DeploymentPhase = "Waiting"
)

// DeploymentPhases lists every phase, in the order of a life.
var DeploymentPhases = []DeploymentPhase{DeploymentInitializing, DeploymentRunning, DeploymentSucceeded, DeploymentFailed, DeploymentWaiting}

// AnnotationRunAgain on a Deployment asks for another run of the same build, or for resolving a tag
// again: any value that it did not have before. Removing it asks for nothing.
const AnnotationRunAgain = "platform.operator.kibaship.com/run-again"

// HistoryLimit is how many runs are remembered and kept.
const HistoryLimit = 5

// The conditions of a Deployment, in addition to Ready.
const (
	// ConditionApplicationReady: the Application exists, fits by its name, and is Ready.
	ConditionApplicationReady = "ApplicationReady"
	// ConditionPipelineAvailable: Tekton is installed, and the settings say where images go.
	ConditionPipelineAvailable = "PipelineAvailable"
	// ConditionSucceeded: the last run built the image that the spec asks for.
	ConditionSucceeded = "Succeeded"
)

// The reasons of conditions and events of a Deployment.
const (
	// ReasonApplicationNotFound: the Application does not exist.
	ReasonApplicationNotFound = "ApplicationNotFound"
	// ReasonApplicationNotReady: the Application is not Ready.
	ReasonApplicationNotReady = "ApplicationNotReady"
	// ReasonNameMismatch: the name does not fit the Application.
	ReasonNameMismatch = "NameMismatch"
	// ReasonPipelineAvailable: builds can run.
	ReasonPipelineAvailable = "PipelineAvailable"
	// ReasonPipelineNotNeeded: the type needs no build.
	ReasonPipelineNotNeeded = "PipelineNotNeeded"
	// ReasonPipelineUnavailable: Tekton is not installed, or TEKTON_MODE is off.
	ReasonPipelineUnavailable = "PipelineUnavailable"
	// ReasonRegistryNotSet: the registry, or the image that pushes, is not set.
	ReasonRegistryNotSet = "RegistryNotSet"
	// ReasonRunStarted: an event: the operator started a run.
	ReasonRunStarted = "RunStarted"
	// ReasonRunning: a run builds.
	ReasonRunning = "Running"
	// ReasonSucceeded: the last run built the image.
	ReasonSucceeded = "Succeeded"
	// ReasonQueued: as many builds run as BUILD_CONCURRENCY or the class of the Project allows.
	ReasonQueued = "Queued"
	// ReasonTektonNotResponding: for a minute Tekton has not started, continued or ended the run.
	ReasonTektonNotResponding = "TektonNotResponding"
	// ReasonRunFailed: a step failed. The message has the end of its output, without logins.
	ReasonRunFailed = "RunFailed"
	// ReasonRunCancelled: a client cancelled the run.
	ReasonRunCancelled = "RunCancelled"
	// ReasonRunTimedOut: it took longer than BUILD_TIMEOUT, or its clone longer than half of that.
	ReasonRunTimedOut = "RunTimedOut"
	// ReasonPodRefused: the namespace does not admit the pod.
	ReasonPodRefused = "PodRefused"
	// ReasonImagePullFailed: the image of a step cannot be pulled.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonStorageClassNotFound: the StorageClass of the volume does not exist.
	ReasonStorageClassNotFound = "StorageClassNotFound"
	// ReasonConfigMapNotFound: a ConfigMap that a run needs does not exist.
	ReasonConfigMapNotFound = "ConfigMapNotFound"
	// ReasonNothingToBuild: an Application of this type has no image.
	ReasonNothingToBuild = "NothingToBuild"
	// ReasonImageNotResolved: the registry does not resolve the tag, or IMAGE_REGISTRIES does not list it. It is tried again.
	ReasonImageNotResolved = "ImageNotResolved"
	// ReasonImageResolved: the digest of the tag is known.
	ReasonImageResolved = "ImageResolved"
)
