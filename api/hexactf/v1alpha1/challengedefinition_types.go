package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ChallengeDefinition defines the components of a Challenge. The operator reads it when a Challenge
// starts and never changes it; a running Challenge stays as it was started.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=challengedefinitions,shortName=hchaldef,categories=hexactf
// +kubebuilder:printcolumn:name="IsOne",type=boolean,JSONPath=`.spec.isOne`
// +kubebuilder:printcolumn:name="Duration",type=string,JSONPath=`.spec.duration`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +operator-sdk:csv:customresourcedefinitions:displayName="HexaCTF Challenge Definition",order=6,resources={{Challenge,v1alpha1,""}}
type ChallengeDefinition struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The components that run, and for how long.
	//
	// +required
	Spec ChallengeDefinitionSpec `json:"spec"`

	// Always empty: see the status of the Challenges that use the definition.
	//
	// +optional
	Status ChallengeDefinitionStatus `json:"status,omitempty"`
}

// ChallengeDefinitionList is a list of ChallengeDefinitions.
//
// +kubebuilder:object:root=true
type ChallengeDefinitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ChallengeDefinition `json:"items"`
}

// ChallengeDefinitionStatus is empty.
type ChallengeDefinitionStatus struct{}

// ChallengeDefinitionSpec defines the components that run, and for how long.
type ChallengeDefinitionSpec struct {
	// Whether a Challenge is shared by all players and does not expire. Default: false.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Is One",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	IsOne bool `json:"isOne,omitempty"`

	// How long a Challenge lives, counted from its status.startedAt, for example 30m, 90s or
	// 1h30m, from 1s to 8760h. Not used if isOne is true. A change affects only Challenges
	// that start later. Default: 30m.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}h)?([0-9]{1,9}m)?([0-9]{1,10}s)?$') && self != '' && duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="duration must be from 1s to 8760h, for example 30m or 1h30m"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Duration"
	Duration *metav1.Duration `json:"duration,omitempty"`

	// The components, each a Deployment and, if players or other components must reach it, a
	// Service. A Challenge needs at least one component.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Components"
	Components []Component `json:"components,omitempty"`
}

// Component is one Deployment with its Service.
type Component struct {
	// Name of the component, unique in the definition: lower-case letters, digits and dashes,
	// a letter or digit at both ends. It becomes part of the names of its objects.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,message="name of a component must have only lower-case letters, digits and dashes, and begin and end with a letter or a digit, for example web"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Name"
	Name string `json:"name"`

	// The Deployment of the component, with a reduced set of fields.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Deployment"
	Deployment *Deployment `json:"deployment"`

	// How players or other components reach it. Default: no Service.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Service"
	Service *Service `json:"service,omitempty"`
}

// Deployment is a Deployment of apps/v1 with a reduced set of fields.
type Deployment struct {
	// Number and template of the pods.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Spec"
	Spec DeploymentSpec `json:"spec"`
}

// DeploymentSpec is the number and the template of the pods.
type DeploymentSpec struct {
	// Number of pods. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Replicas"
	Replicas *int32 `json:"replicas,omitempty"`

	// Template of each pod.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Template"
	Template PodTemplate `json:"template"`
}

// PodTemplate is the pod of a component.
type PodTemplate struct {
	// Containers, and the nodes on which they may run.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Spec"
	Spec PodSpec `json:"spec"`
}

// PodSpec is the specification of a pod with a reduced set of fields. There are no volumes, so
// no container may mount one.
type PodSpec struct {
	// Labels of the nodes on which the pod may run. Default: any node.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Node Selector"
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// The containers, which reach each other at localhost.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Containers"
	Containers []corev1.Container `json:"containers"`
}

// Service is a Service of v1. The operator uses the ports and the type of its spec; other
// fields are accepted and ignored.
//
// +kubebuilder:validation:XValidation:rule="has(self.spec.ports) && size(self.spec.ports) > 0",message="spec.ports is needed: a Service without ports leads nowhere; leave the service out instead"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.type) || self.spec.type != 'ExternalName'",message="spec.type must be ClusterIP, NodePort or LoadBalancer: an ExternalName does not lead to the component"
type Service struct {
	// Accepted for clients that write whole Services, and ignored.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="API Version",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	APIVersion string `json:"apiVersion,omitempty"`

	// Accepted for clients that write whole Services, and ignored.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Kind",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	Kind string `json:"kind,omitempty"`

	// Accepted for clients that write whole Services, and ignored.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Metadata",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	Metadata *runtime.RawExtension `json:"metadata,omitempty"`

	// The ports, and the type: ClusterIP if only components reach it, NodePort if players
	// reach it.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Spec"
	Spec corev1.ServiceSpec `json:"spec"`

	// Accepted for clients that write whole Services, and ignored.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Status",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	Status *runtime.RawExtension `json:"status,omitempty"`
}
