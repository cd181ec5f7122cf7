package isolation

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

const (
	// managedBy differs from the value on instances, whose controller lists its own.
	managedBy = "berg-operator"
	component = "isolation-check"
	probeName = "probe"
)

// objects holds the inputs of a check.
type objects struct {
	// Operator is the UID of the operator's namespace.
	Operator types.UID
	// Installation is an object that goes when the operator is removed.
	Installation metav1.OwnerReference
	// Image and Program are the operator's.
	Image, Program string
	// Node that has the image already.
	Node string
	// Target is an address of the operator, HOST:PORT, that the policy closes.
	Target string
}

// ownershipLabels are the labels of every object that a check makes. They identify the installation
// that made it: by the UID of the operator's own namespace.
var ownershipLabels = ownership.Labels{
	Domain: bergv1.GroupVersion.Group,
	Owner:  "operator-namespace",
	Found:  map[string]string{bergv1.LabelManagedBy: managedBy},
}

func (s objects) owner() ownership.Owner { return ownershipLabels.For(s.Operator, nil) }

// namespaceName is the same for every check of one installation, so that a check finds the objects
// that an earlier one has left.
func (s objects) namespaceName() string {
	return "berg-isolation-check-" + string(s.Operator)
}

// The labels of pod security make an API server refuse a pod of the check that would need more than the strictest profile. The
// policies under test need no such right.
func namespace(s objects) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.namespaceName(),
		Labels: map[string]string{
			bergv1.LabelManagedBy:                managedBy,
			bergv1.LabelComponent:                component,
			"pod-security.kubernetes.io/enforce": "restricted",
			"pod-security.kubernetes.io/warn":    "restricted",
			"pod-security.kubernetes.io/audit":   "restricted",
		},
	}}
	s.owner().SetOn(ns)
	// If the operator is removed before it has deleted the namespace, Kubernetes does.
	ns.OwnerReferences = []metav1.OwnerReference{s.Installation}
	return ns
}

// deployment runs a pod that is ready while it reaches the target. A Deployment, because the
// operator may create Deployments anyway: it needs no right to create pods.
func deployment(s objects) *appsv1.Deployment {
	labels := map[string]string{bergv1.LabelManagedBy: managedBy, bergv1.LabelComponent: component}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: probeName, Namespace: s.namespaceName(), Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Affinity:                      onNode(s.Node),
					AutomountServiceAccountToken:  ptr.To(false),
					EnableServiceLinks:            ptr.To(false),
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot:   ptr.To(true),
						RunAsUser:      ptr.To[int64](65532),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name:            probeName,
						Image:           s.Image,
						ImagePullPolicy: corev1.PullIfNotPresent,
						Command:         []string{s.Program, Command},
						ReadinessProbe: &corev1.Probe{
							ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{s.Program, Command, s.Target}}},
							PeriodSeconds:    2,
							TimeoutSeconds:   5,
							FailureThreshold: 2,
						},
						Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
							Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
						},
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: ptr.To(false),
							ReadOnlyRootFilesystem:   ptr.To(true),
							Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	}
}

// onNode prefers a node that need not pull the image: the Secret that this may
// take is not there.
func onNode(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100,
			Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
			}},
		}},
	}}
}

// policies returns the policies of an instance without outbound traffic.
func policies(s objects, cfg config.Berg) []client.Object {
	all := manifests.ClosedPolicies(cfg, s.namespaceName())
	for _, p := range all {
		p.SetLabels(map[string]string{bergv1.LabelManagedBy: managedBy, bergv1.LabelComponent: component})
	}
	return all
}
