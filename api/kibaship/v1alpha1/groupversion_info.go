package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "platform.operator.kibaship.com", Version: "v1alpha1"}

// SchemeGroupVersion is GroupVersion, by the name that generated clients know it by.
var SchemeGroupVersion = GroupVersion

// Resource adds the group of this package to the plural name of a kind.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Project{}, &ProjectList{}, &ProjectClass{}, &ProjectClassList{}, &Application{}, &ApplicationList{}, &Deployment{}, &DeploymentList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// LocalReference names an object in the namespace of the object that holds the reference.
type LocalReference struct {
	// Name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')`,message="name must be the name of an object: lower-case letters, digits, dashes and dots"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Name"
	Name string `json:"name"`
}

// The labels that clients set, and that the operator hands on.
const (
	// LabelUUID identifies a Project to the platform. Every Project needs one, and no other
	// Project may have the same.
	LabelUUID = "platform.kibaship.com/uuid"
	// LabelWorkspaceUUID identifies the workspace of a Project.
	LabelWorkspaceUUID = "platform.kibaship.com/workspace-uuid"
	// LabelProjectUUID says on an Application to which Project it belongs.
	LabelProjectUUID = "platform.kibaship.com/project-uuid"
)

// The labels and annotations that the operator sets.
const (
	LabelManagedBy   = "platform.kibaship.com/managed-by"
	LabelProjectName = "platform.kibaship.com/project-name"
	// LabelApplication says on a Deployment to which Application it belongs. Names longer
	// than the 63 characters of a label are cut, and end in a hash.
	LabelApplication = "platform.operator.kibaship.com/application"
	// LabelDeployment on an object of a build is the Deployment to which it belongs, cut like
	// LabelApplication.
	LabelDeployment = "platform.operator.kibaship.com/deployment"

	AnnotationCreatedBy = "platform.kibaship.com/created-by"
	AnnotationProject   = "platform.kibaship.com/project"
	AnnotationPurpose   = "platform.kibaship.com/purpose"
	// AnnotationProjectUID identifies the Project to which an object belongs.
	AnnotationProjectUID = "platform.kibaship.com/project-uid"
	// LabelAggregate with the value "true" adds the rules of a ClusterRole to the rights of accounts of bounded
	// Projects.
	LabelAggregate = "platform.operator.kibaship.com/aggregate-to-bounded-projects"
	// LabelConfined with the value "true" is on a namespace that has a network policy of its Project: an admission policy lets
	// no pod leave the API there before its processes have ended.
	LabelConfined = "platform.kibaship.com/confined"
	// LabelAllowed is on a network policy by which an administrator lets more through than the network policy of a Project. No
	// account of a Project may set it.
	LabelAllowed = "platform.kibaship.com/allowed-by-administrator"
	// AnnotationSource of a PipelineRun identifies the source that it was started to build.
	AnnotationSource = "platform.kibaship.com/source"
	// AnnotationApplied records which labels and annotations the operator set on a namespace, so that
	// it removes them when they are no longer wanted.
	AnnotationApplied = "platform.kibaship.com/applied-metadata"
	// AnnotationChecksum is the checksum of the object as the operator wrote it, so that it detects
	// that it would write another one.
	AnnotationChecksum = "platform.kibaship.com/plan-checksum"

	// ManagedBy is the value of LabelManagedBy and AnnotationCreatedBy.
	ManagedBy = "kibaship-operator"
)

// The finalizers.
const (
	// ProjectFinalizer keeps a Project until its namespace is gone.
	ProjectFinalizer = "platform.kibaship.com/project-finalizer"
	// ApplicationFinalizer keeps an Application until its Deployments are deleted.
	ApplicationFinalizer = "platform.operator.kibaship.com/application-finalizer"
	// DeploymentFinalizer keeps a Deployment until its last build is counted in the usage of its Project.
	DeploymentFinalizer = "platform.operator.kibaship.com/deployment-finalizer"
)

// ProjectAdmin is the ClusterRole that the operator binds in the namespace of each Project.
// An administrator creates it.
const ProjectAdmin = "kibaship-project-admin"

// The reasons of conditions and events that more than one kind has.
const (
	// ReasonWaiting: another condition comes first.
	ReasonWaiting = "Waiting"
	// ReasonInvalid: the spec breaks a rule that the schema does not have.
	ReasonInvalid = "Invalid"
	// ReasonCreated: the object is in place.
	ReasonCreated = "Created"
	// ReasonContested: another client undoes each write.
	ReasonContested = "Contested"
	// ReasonRefused: the API server refuses an object.
	ReasonRefused = "Refused"
	// ReasonWriteFailed: the API server failed, or could not be reached. It is retried.
	ReasonWriteFailed = "WriteFailed"
	// ReasonOwnershipConflict: an object of that name belongs to another owner.
	ReasonOwnershipConflict = "OwnershipConflict"
	// ReasonTerminating: the object is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonDeletionBlocked: something prevents the deletion, which the message names.
	ReasonDeletionBlocked = "DeletionBlocked"
)
