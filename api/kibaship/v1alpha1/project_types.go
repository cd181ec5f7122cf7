package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Project is a namespace of its own for a tenant, project-<name>-ns-kibaship-com, with a
// ServiceAccount that may do everything there and nothing elsewhere. It needs the label
// platform.kibaship.com/uuid.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=projects,shortName=kproj,categories=kibaship
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.status.namespaceName`
// +kubebuilder:printcolumn:name="Tekton",type=string,JSONPath=`.status.conditions[?(@.type=="TektonIntegrated")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 39",optionalOldSelf=true,message="metadata.name must be no longer than 39 characters: the namespace project-<name>-ns-kibaship-com must fit into 63"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",optionalOldSelf=true,message="metadata.name must consist of lower-case letters, digits and dashes, with a letter or digit at both ends: it is part of the name of a namespace"
// +operator-sdk:csv:customresourcedefinitions:displayName="KibaShip Project",order=7,resources={{Namespace,v1,""},{ServiceAccount,v1,""},{Role,v1,""},{RoleBinding,v1,""},{ResourceQuota,v1,""},{LimitRange,v1,""},{NetworkPolicy,v1,""},{Event,v1,""}}
type Project struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The workloads that the tenant may run, and their limits.
	//
	// +optional
	Spec ProjectSpec `json:"spec,omitempty"`

	// State that the operator observed.
	//
	// +optional
	Status ProjectStatus `json:"status,omitempty"`
}

// ProjectList is a list of Projects.
//
// +kubebuilder:object:root=true
type ProjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Project `json:"items"`
}

// ProjectSpec limits the workloads of a tenant.
type ProjectSpec struct {
	// ProjectClass whose limits the Project has where it sets none of its own. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$')`,message="class must be the name of a ProjectClass, for example basic"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Class"
	Class string `json:"class,omitempty"`

	// Which types of Applications the Project may have, and how large each may be. Default:
	// every type but the two clusters, of any size.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Application Types"
	ApplicationTypes ApplicationTypes `json:"applicationTypes,omitempty"`

	// Limits of volumes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Volumes"
	Volumes Volumes `json:"volumes,omitempty"`

	// Pod Security Standard that the namespace enforces. Builds of Git repositories need baseline or
	// less. With this, quota, containerLimits or networkPolicy the Project's ServiceAccount loses the
	// rights with which it could remove them: it may manage the objects that applications consist of,
	// and change neither its namespace nor its limits. Default: none is enforced, as the cluster is
	// set up.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Pod Security",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:privileged","urn:alm:descriptor:com.tectonic.ui:select:baseline","urn:alm:descriptor:com.tectonic.ui:select:restricted"}
	PodSecurity PodSecurity `json:"podSecurity,omitempty"`

	// Maximum of all pods and volumes of the Project together, as in spec.hard of a ResourceQuota, for
	// example requests.cpu, limits.memory, pods. Default: no quota.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Quota"
	Quota corev1.ResourceList `json:"quota,omitempty"`

	// Resources of a container that requests none, and the maximum that a container may request. A
	// quota of CPU or memory refuses pods that request none: so set both. Default: no limits.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Container Limits"
	ContainerLimits *ContainerLimits `json:"containerLimits,omitempty"`

	// Cuts the Project off from other namespaces. Default: as open as the cluster is.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Network Policy"
	NetworkPolicy *NetworkPolicy `json:"networkPolicy,omitempty"`
}

// PodSecurity is a Pod Security Standard.
//
// +kubebuilder:validation:Enum=privileged;baseline;restricted
type PodSecurity string

// The Pod Security Standards.
const (
	PodSecurityPrivileged PodSecurity = "privileged"
	PodSecurityBaseline   PodSecurity = "baseline"
	PodSecurityRestricted PodSecurity = "restricted"
)

// ContainerLimits are the defaults and the bounds of a container.
type ContainerLimits struct {
	// Limits of a container that has none.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Default"
	Default corev1.ResourceList `json:"default,omitempty"`

	// Requests of a container that has none. Default: its limits.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Default Request"
	DefaultRequest corev1.ResourceList `json:"defaultRequest,omitempty"`

	// Maximum that a container may have as its limits.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Max"
	Max corev1.ResourceList `json:"max,omitempty"`
}

// NetworkPolicy cuts a Project off from other namespaces: its pods reach each other and the
// cluster's name servers, and no other pod reaches them.
type NetworkPolicy struct {
	// Namespaces whose pods may reach the pods of the Project, for example the namespace of an ingress
	// controller. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')`,message="must be the name of a namespace, for example ingress-nginx"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Ingress From"
	IngressFrom []string `json:"ingressFrom,omitempty"`

	// Addresses that pods may reach in addition to each other and the cluster's name servers: None;
	// Internet, without private networks; All. Builds need to reach the git server and the registry.
	// +optional
	// +kubebuilder:default=None
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Egress",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:None","urn:alm:descriptor:com.tectonic.ui:select:Internet","urn:alm:descriptor:com.tectonic.ui:select:All"}
	Egress Egress `json:"egress,omitempty"`
}

// Egress decides which addresses pods may reach beyond their own namespace.
//
// +kubebuilder:validation:Enum=None;Internet;All
type Egress string

// The kinds of egress.
const (
	EgressNone     Egress = "None"
	EgressInternet Egress = "Internet"
	EgressAll      Egress = "All"
)

// ApplicationTypes says of each type of Application whether a Project may have it, and how
// large.
type ApplicationTypes struct {
	// A single MySQL server.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="MySQL"
	MySQL *TypePolicy `json:"mysql,omitempty"`

	// A MySQL cluster. Not allowed unless enabled.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="MySQL Cluster"
	MySQLCluster *ClusterTypePolicy `json:"mysqlCluster,omitempty"`

	// A single PostgreSQL server.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Postgres"
	Postgres *TypePolicy `json:"postgres,omitempty"`

	// A PostgreSQL cluster. Not allowed unless enabled.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Postgres Cluster"
	PostgresCluster *ClusterTypePolicy `json:"postgresCluster,omitempty"`

	// A container image.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Docker Image"
	DockerImage *TypePolicy `json:"dockerImage,omitempty"`

	// An image that is built from a Git repository.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Git Repository"
	GitRepository *TypePolicy `json:"gitRepository,omitempty"`
}

// TypePolicy says whether a Project may have Applications of a type, and how large.
type TypePolicy struct {
	// Whether the Project may have Applications of this type.
	// +required
	// +kubebuilder:default=true
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Enabled",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	Enabled bool `json:"enabled"`

	// Limits of an Application that does not say. Default: none.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Default Limits"
	DefaultLimits Limits `json:"defaultLimits,omitempty"`

	// Sizes that an Application may ask for. Default: any.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resource Bounds"
	ResourceBounds Bounds `json:"resourceBounds,omitempty"`
}

// ClusterTypePolicy is the TypePolicy of a type that has nodes.
type ClusterTypePolicy struct {
	// Whether the Project may have Applications of this type.
	// +required
	// +kubebuilder:default=false
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Enabled",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	Enabled bool `json:"enabled"`

	// Limits of an Application that does not say. Default: none.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Default Limits"
	DefaultLimits ClusterLimits `json:"defaultLimits,omitempty"`

	// Sizes that an Application may ask for. Default: any.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resource Bounds"
	ResourceBounds ClusterBounds `json:"resourceBounds,omitempty"`
}

// Bounds are a minimum and a maximum.
type Bounds struct {
	// Minimum that an Application may ask for.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Min"
	Min Limits `json:"min,omitempty"`

	// Maximum that an Application may ask for.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Max"
	Max Limits `json:"max,omitempty"`
}

// ClusterBounds are a minimum and a maximum of a type that has nodes.
type ClusterBounds struct {
	// Minimum that an Application may ask for.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Min"
	Min ClusterLimits `json:"min,omitempty"`

	// Maximum that an Application may ask for.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Max"
	Max ClusterLimits `json:"max,omitempty"`
}

// Limits are amounts of CPU, memory and storage.
type Limits struct {
	// CPU in cores, for example 0.5 or 2.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9]+(\.[0-9]+)?$')`,message="cpu must be a number of cores, for example 0.5 or 2"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="CPU"
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="CPU"
	CPU string `json:"cpu,omitempty"`

	// Memory, for example 512Mi or 2Gi.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9]+(\.[0-9]+)?(Mi|Gi|Ti)$')`,message="memory must be a number with Mi, Gi or Ti, for example 512Mi"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Memory"
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Memory"
	Memory string `json:"memory,omitempty"`

	// Storage, for example 20Gi.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9]+(\.[0-9]+)?(Mi|Gi|Ti)$')`,message="storage must be a number with Mi, Gi or Ti, for example 20Gi"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Storage"
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Storage"
	Storage string `json:"storage,omitempty"`
}

// ClusterLimits are the limits of a type that has nodes.
type ClusterLimits struct {
	Limits `json:",inline"`

	// Number of nodes, which the replicas of an Application are.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Nodes"
	Nodes int32 `json:"nodes,omitempty"`
}

// Volumes limits the size of volumes.
type Volumes struct {
	// Maximum storage that an Application, or a volume in the namespace, may ask for, for
	// example 100Gi. Default: any size.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9]+(\.[0-9]+)?(Mi|Gi|Ti)$')`,message="maxStorageSize must be a number with Mi, Gi or Ti, for example 100Gi"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Max Storage Size"
	MaxStorageSize string `json:"maxStorageSize,omitempty"`
}

// ProjectStatus is the observed state of a Project.
type ProjectStatus struct {
	// Pending: it is being made or deleted, or waits for something that passes by itself; Ready:
	// namespace and rights are in place; Failed: the problem in the message must be fixed, and then it
	// continues by itself.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Phase",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	Phase ProjectPhase `json:"phase,omitempty"`

	// Name of the namespace, once it is this Project's.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace Name",xDescriptors={"urn:alm:descriptor:io.kubernetes:Namespace"}
	NamespaceName string `json:"namespaceName,omitempty"`

	// UID of the namespace, since the operator created it. A namespace of the same name with another UID is not this
	// Project's, also with the same labels and annotations: nothing is written in it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace UID",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`

	// SHA-256 of a random value that only the operator knows until it creates the namespace, which has that value as an
	// annotation. It identifies the namespace until namespaceUID is known.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace Token Hash",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	NamespaceTokenHash string `json:"namespaceTokenHash,omitempty"`

	// The phase in words: the problem, if there is one.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase:reason"}
	Message string `json:"message,omitempty"`

	// When a reconciliation last brought the Project to Ready, or changed something about a
	// Project that is. One that finds nothing to change writes nothing.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Last Reconcile Time"
	LastReconcileTime *metav1.Time `json:"lastReconcileTime,omitempty"`

	// metadata.generation that this status describes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Contents and usage of the Project.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Usage"
	Usage ProjectUsage `json:"usage,omitempty"`

	// The steps that are done, and the steps that are missing and why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProjectUsage counts the contents and the usage of a Project.
type ProjectUsage struct {
	// Number of Applications in the namespace.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Applications"
	Applications int32 `json:"applications,omitempty"`

	// Number of Deployments in the namespace.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Deployments"
	Deployments int32 `json:"deployments,omitempty"`

	// Used amounts of the quota, as the cluster counts them. Absent without a quota.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Quota"
	Quota corev1.ResourceList `json:"quota,omitempty"`

	// Amounts that the Project asks for: cpu, memory and storage are the sums of its Applications. Used amounts of the quota follow, with
	// quota. before their names, for example quota.requests.cpu.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Asked"
	Asked corev1.ResourceList `json:"asked,omitempty"`

	// Time until which days counts the amounts in asked. They are counted when they change, and after each day.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Counted Until"
	CountedUntil *metav1.Time `json:"countedUntil,omitempty"`

	// Usage of the last 31 days (UTC) on which there was any, the oldest first.
	// +optional
	// +listType=map
	// +listMapKey=date
	// +kubebuilder:validation:MaxItems=31
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Days"
	Days []UsageDay `json:"days,omitempty"`

	// Builds of the last 31 days (UTC) on which one ended, the oldest first.
	// +optional
	// +listType=map
	// +listMapKey=date
	// +kubebuilder:validation:MaxItems=31
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Builds"
	Builds []BuildDay `json:"builds,omitempty"`

	// The builds that were counted last, so that each one is counted once.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Counted Builds",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	CountedBuilds []string `json:"countedBuilds,omitempty"`
}

// UsageDay is the usage of one day.
type UsageDay struct {
	// The day in UTC, for example 2026-11-29.
	// +required
	// +kubebuilder:validation:MaxLength=10
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Date"
	Date string `json:"date"`

	// The highest number of Applications.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Applications"
	Applications int32 `json:"applications,omitempty"`

	// The highest number of Deployments.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Deployments"
	Deployments int32 `json:"deployments,omitempty"`

	// The amounts in asked, multiplied by the seconds for which they were asked for.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Asked Seconds"
	AskedSeconds corev1.ResourceList `json:"askedSeconds,omitempty"`
}

// BuildDay is what the builds that ended on one day used.
type BuildDay struct {
	// The day in UTC, for example 2026-11-29.
	// +required
	// +kubebuilder:validation:MaxLength=10
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Date"
	Date string `json:"date"`

	// Number of builds that pushed an image.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Succeeded"
	Succeeded int32 `json:"succeeded,omitempty"`

	// Number of builds that started and ended without an image.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Failed"
	Failed int32 `json:"failed,omitempty"`

	// Seconds from start to end of all builds together.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Seconds"
	Seconds int64 `json:"seconds,omitempty"`

	// The limits of BUILD_LIMITS, multiplied by the seconds of the builds.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Limit Seconds"
	LimitSeconds corev1.ResourceList `json:"limitSeconds,omitempty"`

	// Sizes of the images that were pushed, in bytes, as the registry stores them. A layer that two images share counts twice.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Image Bytes"
	ImageBytes int64 `json:"imageBytes,omitempty"`
}

// UsageDays is how many days the usage of a Project has at most.
const UsageDays = 31

// ProjectClass is a named set of limits for Projects, for example of a price. Only accounts that may write in the whole cluster can create or
// change one, or name one in a Project.
//
// +genclient
// +genclient:nonNamespaced
// +genclient:noStatus
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=projectclasses,shortName=kclass,categories=kibaship
// +kubebuilder:printcolumn:name="Builds",type=integer,JSONPath=`.spec.concurrentBuilds`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +operator-sdk:csv:customresourcedefinitions:displayName="KibaShip Project Class",order=10,resources={{Project,v1alpha1,""}}
type ProjectClass struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The limits. A Project that sets quota or containerLimits itself has its own instead.
	//
	// +optional
	Spec ProjectClassSpec `json:"spec,omitempty"`
}

// ProjectClassList is a list of ProjectClasses.
//
// +kubebuilder:object:root=true
type ProjectClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProjectClass `json:"items"`
}

// ProjectClassSpec has the limits of a class.
type ProjectClassSpec struct {
	// The quota of a Project that sets none, as in spec.hard of a ResourceQuota. It can also limit the number of objects, for example with
	// count/applications.platform.operator.kibaship.com.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Quota"
	Quota corev1.ResourceList `json:"quota,omitempty"`

	// The containerLimits of a Project that sets none.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Container Limits"
	ContainerLimits *ContainerLimits `json:"containerLimits,omitempty"`

	// How many builds of one Project run at the same time. Others wait. Default: no limit but BUILD_CONCURRENCY.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Concurrent Builds"
	ConcurrentBuilds int32 `json:"concurrentBuilds,omitempty"`
}

// ProjectPhase is a step in the life of a Project.
//
// +kubebuilder:validation:Enum=Pending;Ready;Failed
type ProjectPhase string

// The phases of a Project.
const (
	// ProjectPending: it is being created or deleted, or waits for something that ends by itself.
	ProjectPending ProjectPhase = "Pending"
	// ProjectReady: namespace, rights and bounds are in place.
	ProjectReady ProjectPhase = "Ready"
	// ProjectFailed: something must be fixed. It then continues by itself.
	ProjectFailed ProjectPhase = "Failed"
)

// ProjectPhases lists every phase.
var ProjectPhases = []ProjectPhase{ProjectPending, ProjectReady, ProjectFailed}

// The conditions of a Project, in the order in which it is made. One that is False stops the
// later ones, but TektonIntegrated stops Ready only where TEKTON_MODE is required.
const (
	// ConditionAccepted: name, labels and spec are valid, and no other Project has the uuid.
	ConditionAccepted = "Accepted"
	// ConditionNamespaceReady: the namespace exists and is this Project's.
	ConditionNamespaceReady = "NamespaceReady"
	// ConditionAccessReady: the ServiceAccount exists and has its rights in the namespace.
	ConditionAccessReady = "AccessReady"
	// ConditionLimitsReady: quota, limits and network policy are as the spec says.
	ConditionLimitsReady = "LimitsReady"
	// ConditionTektonIntegrated: the ServiceAccount may read the Tasks in tekton-pipelines.
	ConditionTektonIntegrated = "TektonIntegrated"
	// ConditionReady: all objects are in place.
	ConditionReady = "Ready"
	// ConditionStalled exists, and is True, only while a person must act. A Failed Project, Application or Deployment has it.
	ConditionStalled = "Stalled"
)

// The reasons of conditions and events of a Project.
const (
	// ReasonAccepted: name, labels and spec are valid.
	ReasonAccepted = "Accepted"
	// ReasonInvalidName: the name does not follow the rules for its kind. Other kinds have this reason, too.
	ReasonInvalidName = "InvalidName"
	// ReasonInvalidLabels: a label is missing, or its value is not valid. The message names it.
	ReasonInvalidLabels = "InvalidLabels"
	// ReasonUUIDTaken: another Project has the same uuid.
	ReasonUUIDTaken = "UUIDTaken"
	// ReasonClassNotFound: the ProjectClass does not exist.
	ReasonClassNotFound = "ClassNotFound"
	// ReasonNamespaceConflict: a namespace of that name exists, and is not the Project's.
	ReasonNamespaceConflict = "NamespaceConflict"
	// ReasonNamespaceCreated: an event: the operator created the namespace.
	ReasonNamespaceCreated = "NamespaceCreated"
	// ReasonAdminRoleMissing: the ClusterRole PROJECT_ADMIN_CLUSTER_ROLE does not exist.
	ReasonAdminRoleMissing = "ProjectAdminMissing"
	// ReasonAdmissionPolicyMissing: the API server does not enforce an admission policy without which the operator gives no rights.
	ReasonAdmissionPolicyMissing = "AdmissionPolicyMissing"

	// ReasonRightsExceedBounds: an account of the Project has rights to take its bounds off. The message names the RoleBinding.
	ReasonRightsExceedBounds = "RightsExceedBounds"
	// ReasonPoliciesExceedBounds: a network policy lets through more than the Project's.
	ReasonPoliciesExceedBounds = "PoliciesExceedBounds"
	// ReasonTektonNotInstalled: Tekton is not installed.
	ReasonTektonNotInstalled = "TektonNotInstalled"
	// ReasonTektonOff: TEKTON_MODE is off.
	ReasonTektonOff = "TektonOff"
	// ReasonProjectReady: all objects are in place.
	ReasonProjectReady = "ProjectReady"
)
