package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Application describes a workload or database of a Project. It is in the Project's namespace and
// is called project-<project>-app-<app>-kibaship-com. The operator checks it and creates no
// workload for it; a Deployment builds it.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=applications,shortName=kapp,categories=kibaship
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Project",type=string,JSONPath=`.spec.projectRef.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:selectablefield:JSONPath=`.spec.projectRef.name`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.matches('^project-[a-z0-9]([a-z0-9-]*[a-z0-9])?-app-[a-z0-9]([a-z0-9-]*[a-z0-9])?-kibaship-com$')",optionalOldSelf=true,message="metadata.name must be project-<project>-app-<app>-kibaship-com, with lower-case letters, digits and dashes: ^project-[a-z0-9]([a-z0-9-]*[a-z0-9])?-app-[a-z0-9]([a-z0-9-]*[a-z0-9])?-kibaship-com$"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.startsWith('project-' + self.spec.projectRef.name + '-app-')",optionalOldSelf=true,message="metadata.name must begin with project-<project>-app-, with the project of spec.projectRef.name"
// +operator-sdk:csv:customresourcedefinitions:displayName="KibaShip Application",order=8,resources={{Deployment,v1alpha1,""}}
type Application struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The workload: its type, its source, and its size.
	//
	// +required
	Spec ApplicationSpec `json:"spec"`

	// State that the operator observed.
	//
	// +optional
	Status ApplicationStatus `json:"status,omitempty"`
}

// ApplicationList is a list of Applications.
//
// +kubebuilder:object:root=true
type ApplicationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Application `json:"items"`
}

// ApplicationSpec describes a workload or database. Only the block of its type is needed and used.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'GitRepository' || has(self.gitRepository)",message="spec.gitRepository is required where spec.type is GitRepository"
// +kubebuilder:validation:XValidation:rule="self.type != 'DockerImage' || has(self.dockerImage)",message="spec.dockerImage is required where spec.type is DockerImage"
// +kubebuilder:validation:XValidation:rule="self.type != 'MySQL' || has(self.mysql)",message="spec.mysql is required where spec.type is MySQL, if only as mysql: {}"
// +kubebuilder:validation:XValidation:rule="self.type != 'MySQLCluster' || has(self.mysqlCluster)",message="spec.mysqlCluster is required where spec.type is MySQLCluster, if only as mysqlCluster: {}"
// +kubebuilder:validation:XValidation:rule="self.type != 'Postgres' || has(self.postgres)",message="spec.postgres is required where spec.type is Postgres, if only as postgres: {}"
// +kubebuilder:validation:XValidation:rule="self.type != 'PostgresCluster' || has(self.postgresCluster)",message="spec.postgresCluster is required where spec.type is PostgresCluster, if only as postgresCluster: {}"
// +kubebuilder:validation:XValidation:rule="self.type != 'GitRepository' || !has(self.gitRepository) || (has(self.gitRepository.publicAccess) && self.gitRepository.publicAccess) || has(self.gitRepository.secretRef)",message="spec.gitRepository.secretRef (SecretRef) is required unless publicAccess (PublicAccess) is true: name a Secret whose key token holds a git access token"
type ApplicationSpec struct {
	// The Project that this Application belongs to. The Application must be in its
	// namespace, project-<name>-ns-kibaship-com.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Project Ref"
	ProjectRef LocalReference `json:"projectRef"`

	// Type of the Application. The Project must allow it.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Type",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:MySQL","urn:alm:descriptor:com.tectonic.ui:select:MySQLCluster","urn:alm:descriptor:com.tectonic.ui:select:Postgres","urn:alm:descriptor:com.tectonic.ui:select:PostgresCluster","urn:alm:descriptor:com.tectonic.ui:select:DockerImage","urn:alm:descriptor:com.tectonic.ui:select:GitRepository"}
	Type ApplicationType `json:"type"`

	// The size of the Application. It must be within the resourceBounds of the Project; an amount that
	// is left out comes from the Project's defaultLimits.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Limits"
	Limits Limits `json:"limits,omitempty"`

	// For type GitRepository: which images of earlier builds stay in the registry, where IMAGE_CLEANUP is on. Default: as
	// IMAGE_RETENTION_COUNT and IMAGE_RETENTION_AGE say.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image Retention"
	ImageRetention *ImageRetention `json:"imageRetention,omitempty"`

	// For type GitRepository: where the source is, and how it is built.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Git Repository"
	GitRepository *GitRepository `json:"gitRepository,omitempty"`

	// For type DockerImage: the image.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Docker Image"
	DockerImage *DockerImage `json:"dockerImage,omitempty"`

	// For type MySQL.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="MySQL"
	MySQL *Database `json:"mysql,omitempty"`

	// For type MySQLCluster.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="MySQL Cluster"
	MySQLCluster *DatabaseCluster `json:"mysqlCluster,omitempty"`

	// For type Postgres.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Postgres"
	Postgres *Database `json:"postgres,omitempty"`

	// For type PostgresCluster.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Postgres Cluster"
	PostgresCluster *DatabaseCluster `json:"postgresCluster,omitempty"`
}

// ApplicationType is a kind of Application.
//
// +kubebuilder:validation:Enum=MySQL;MySQLCluster;Postgres;PostgresCluster;DockerImage;GitRepository
type ApplicationType string

// The types of Applications.
const (
	TypeMySQL           ApplicationType = "MySQL"
	TypeMySQLCluster    ApplicationType = "MySQLCluster"
	TypePostgres        ApplicationType = "Postgres"
	TypePostgresCluster ApplicationType = "PostgresCluster"
	TypeDockerImage     ApplicationType = "DockerImage"
	TypeGitRepository   ApplicationType = "GitRepository"
)

// ApplicationTypeNames lists every type, with the name of its field in a Project's
// spec.applicationTypes.
var ApplicationTypeNames = []struct {
	Type  ApplicationType
	Field string
}{
	{TypeMySQL, "mysql"},
	{TypeMySQLCluster, "mysqlCluster"},
	{TypePostgres, "postgres"},
	{TypePostgresCluster, "postgresCluster"},
	{TypeDockerImage, "dockerImage"},
	{TypeGitRepository, "gitRepository"},
}

// GitProvider is where a repository is kept.
//
// +kubebuilder:validation:Enum=github.com;gitlab.com;bitbucket.com
type GitProvider string

// The git providers.
const (
	GitHub    GitProvider = "github.com"
	GitLab    GitProvider = "gitlab.com"
	Bitbucket GitProvider = "bitbucket.com"
)

// GitRepository says where the source of an Application is, and how it is built.
type GitRepository struct {
	// Where the repository is kept.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Provider",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:github.com","urn:alm:descriptor:com.tectonic.ui:select:gitlab.com","urn:alm:descriptor:com.tectonic.ui:select:bitbucket.com"}
	Provider GitProvider `json:"provider"`

	// Name of the repository, as <organisation>/<repository>.
	// +required
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-zA-Z0-9._-]+/[a-zA-Z0-9._-]+$')`,message="repository must be <organisation>/<repository>, for example example/shop"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'(^|/)([.]|[.][.]|[.]git)(/|$)')`,message="repository must name an organisation and a repository: . and .. and .git are no names"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Repository"
	Repository string `json:"repository"`

	// Whether the repository can be read without a login. Otherwise secretRef is needed.
	// +optional
	// +kubebuilder:default=false
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Public Access",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	PublicAccess bool `json:"publicAccess,omitempty"`

	// Secret whose key token holds a git access token. Needed unless publicAccess is true.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Secret Ref"
	SecretRef *LocalReference `json:"secretRef,omitempty"`

	// Branch to build. Default: that which the repository calls its default.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-zA-Z0-9_][a-zA-Z0-9._/+@#-]*$')`,message="branch must be the name of a branch, for example main or feature/login"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'[.][.]|//|/[.]|[.]lock(/|$)|[./]$')`,message="branch must be a name that git accepts: without .. and //, and without a dot, a slash or .lock at the end of a part"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Branch"
	Branch string `json:"branch,omitempty"`

	// Path of the Application within the repository. Default: its root.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'(^|/)[.][.](/|$)|[\x00-\x1f\x7f]|\$\(')`,message="path must be a path below the root of the repository, without .. and line breaks, and without $(, which Tekton would replace"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Path"
	Path string `json:"path,omitempty"`

	// Directory below path that is built.
	// +optional
	// +kubebuilder:default="./"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'(^|/)[.][.](/|$)|[\x00-\x1f\x7f]|\$\(')`,message="rootDirectory must be a path below the root of the repository, without .. and line breaks, and without $(, which Tekton would replace"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Root Directory"
	RootDirectory string `json:"rootDirectory,omitempty"`

	// Path of the Dockerfile below rootDirectory, such as docker/web.Dockerfile. Default: Dockerfile. With a path, the file must exist.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'(^|/)[.][.](/|$)|[\x00-\x1f\x7f]|\$\(')`,message="dockerfilePath must be a path below the root of the repository, without .. and line breaks, and without $(, which Tekton would replace"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Dockerfile Path"
	DockerfilePath string `json:"dockerfilePath,omitempty"`

	// Arguments of the build, which ARG of the Dockerfile reads. Put no secrets there: everyone who has the image can read them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Build Args"
	BuildArgs []BuildArg `json:"buildArgs,omitempty"`

	// Secret of type kubernetes.io/dockerconfigjson with which the images behind FROM are read. The commands of the Dockerfile can
	// read it, too. Default: the Secret of the setting BUILD_PULL_SECRET.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image Pull Secret Ref"
	ImagePullSecretRef *LocalReference `json:"imagePullSecretRef,omitempty"`

	// Command that builds the Application, where there is no Dockerfile.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Build Command"
	BuildCommand string `json:"buildCommand,omitempty"`

	// Command that starts the Application, where there is no Dockerfile.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Start Command"
	StartCommand string `json:"startCommand,omitempty"`

	// Secret whose keys are environment variables of the Application. The operator only checks that it exists: a build does not get
	// it, and the platform that runs the image hands it over.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Env"
	Env *LocalReference `json:"env,omitempty"`

	// Directory of the files of a single-page application after its build.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'(^|/)[.][.](/|$)|[\x00-\x1f\x7f]|\$\(')`,message="spaOutputDirectory must be a path below the root of the repository, without .. and line breaks, and without $(, which Tekton would replace"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="SPA Output Directory"
	SPAOutputDirectory string `json:"spaOutputDirectory,omitempty"`

	// Whether a push starts a build, and of which branches and tags. Default: builds start by Deployments that you create.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Auto Build"
	AutoBuild *AutoBuild `json:"autoBuild,omitempty"`
}

// ImageRetention says which images of earlier builds stay: the newest ones, and the young ones. Images that a Deployment, an Application or a
// workload of the Project names stay in any case.
type ImageRetention struct {
	// How many of the newest images stay, by the times of their commits. 0: age alone decides. Default: IMAGE_RETENTION_COUNT.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Count"
	Count *int32 `json:"count,omitempty"`

	// How long after the time of its commit an image stays, for example 720h. 0s: count alone decides. Default: IMAGE_RETENTION_AGE.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Age"
	Age *metav1.Duration `json:"age,omitempty"`
}

// BuildArg is an argument of a build.
type BuildArg struct {
	// Name, as ARG of the Dockerfile spells it.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z_][A-Za-z0-9_]*$')`,message="name of a build argument must have only letters, digits and underscores, and not begin with a digit"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Name"
	Name string `json:"name"`

	// Text that replaces the default which ARG gives.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('$(')",message="must not contain $(, which Tekton would replace: the value cannot be passed on as it is"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Value"
	Value string `json:"value,omitempty"`
}

// DockerImage is an image that exists.
type DockerImage struct {
	// Reference of the image, for example nginx or registry.example.org/team/app:1.2.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-zA-Z0-9\[][a-zA-Z0-9._:/@\[\]-]*$') && !self.matches(r'[.][.]|//|/[.]|/$')`,message="image must be the reference of an image: [host[:port]/]name[:tag][@sha256:digest]"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image"
	Image string `json:"image"`

	// Secret of type kubernetes.io/dockerconfigjson with which the image is read.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image Pull Secret Ref"
	ImagePullSecretRef *LocalReference `json:"imagePullSecretRef,omitempty"`

	// Tag that replaces the tag in image.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$')`,message="tag must be the tag of an image, at most 128 characters, for example 1.27"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Tag"
	Tag string `json:"tag,omitempty"`
}

// Database is a single database server.
type Database struct {
	// Version of the server, for example 8.0. Default: the platform's.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Version"
	Version string `json:"version,omitempty"`

	// Name of the first database. Default: the platform's.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Database"
	Database string `json:"database,omitempty"`

	// Secret with the credentials.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Secret Ref"
	SecretRef *LocalReference `json:"secretRef,omitempty"`
}

// DatabaseCluster is a database server of several nodes.
type DatabaseCluster struct {
	Database `json:",inline"`

	// Number of nodes.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Replicas",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:podCount"}
	Replicas int32 `json:"replicas,omitempty"`
}

// ApplicationStatus is the observed state of an Application.
type ApplicationStatus struct {
	// Pending: something that passes by itself is missing; Ready: it can be deployed; Failed: the
	// problem in the message must be fixed; Deleting: its Deployments are being deleted.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Phase",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	Phase string `json:"phase,omitempty"`

	// The phase in words: the problem, if there is one.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase:reason"}
	Message string `json:"message,omitempty"`

	// metadata.generation that this status describes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The size in force: the spec's, completed from the Project's defaultLimits.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Limits"
	Limits Limits `json:"limits,omitempty"`

	// The builds that pushes start, where spec.gitRepository.autoBuild is enabled.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Auto Build"
	AutoBuild *AutoBuildStatus `json:"autoBuild,omitempty"`

	// The steps that are done, and the steps that are missing and why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The phases of an Application.
const (
	// ApplicationPending: the Project or a Secret is missing. It continues when that is there.
	ApplicationPending = "Pending"
	// ApplicationReady: it can be deployed.
	ApplicationReady = "Ready"
	// ApplicationFailed: something must be fixed, and the message names the field.
	ApplicationFailed = "Failed"
	// ApplicationDeleting: its Deployments are being deleted.
	ApplicationDeleting = "Deleting"
)

// ApplicationPhases lists every phase.
var ApplicationPhases = []string{ApplicationPending, ApplicationReady, ApplicationFailed, ApplicationDeleting}

// The conditions of an Application, in addition to Ready.
const (
	// ConditionProjectFound: the Project exists, and the Application is in its namespace.
	ConditionProjectFound = "ProjectFound"
	// ConditionSpecAccepted: name and spec are valid, and the Project allows them.
	ConditionSpecAccepted = "SpecAccepted"
	// ConditionSecretFound: every Secret that the Application names exists.
	ConditionSecretFound = "SecretFound"
	// ConditionImagesCleanedUp: images that are neither named nor kept are deleted from the registry. It exists while IMAGE_CLEANUP is on.
	ConditionImagesCleanedUp = "ImagesCleanedUp"
)

// The reasons of conditions and events of an Application.
const (
	// ReasonApplicationReady: nothing is missing.
	ReasonApplicationReady = "ApplicationReady"
	// ReasonProjectFound: the Project is Ready, and this is its namespace.
	ReasonProjectFound = "ProjectFound"
	// ReasonProjectNotFound: the Project does not exist.
	ReasonProjectNotFound = "ProjectNotFound"
	// ReasonProjectNotReady: the Project is not Ready.
	ReasonProjectNotReady = "ProjectNotReady"
	// ReasonWrongNamespace: the Application is not in the namespace of its Project.
	ReasonWrongNamespace = "WrongNamespace"
	// ReasonSpecAccepted: name and spec are valid, and the Project allows them.
	ReasonSpecAccepted = "SpecAccepted"
	// ReasonInvalidSpec: the message names the field.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonTypeDisabled: the Project does not allow this type.
	ReasonTypeDisabled = "TypeDisabled"
	// ReasonOutOfBounds: a value is not within what the Project allows.
	ReasonOutOfBounds = "OutOfBounds"
	// ReasonSecretFound: every Secret exists.
	ReasonSecretFound = "SecretFound"
	// ReasonSecretNotFound: a Secret that it names does not exist.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonSecretNotNeeded: it names no Secret.
	ReasonSecretNotNeeded = "SecretNotNeeded"
	// ReasonImagesCleanedUp: the images were looked through, and the message counts them.
	ReasonImagesCleanedUp = "ImagesCleanedUp"
	// ReasonDeletionRefused: the registry deletes no images, or none for this login. It is tried again once a day.
	ReasonDeletionRefused = "DeletionRefused"
	// ReasonCleanUpFailed: the Secret, the right or the registry is missing, or an image could not be put back. It is retried.
	ReasonCleanUpFailed = "CleanUpFailed"
)
