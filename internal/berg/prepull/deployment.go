package prepull

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

const (
	containerName = "image"
	// anyUser owns nothing, in any image.
	anyUser = 65532
)

// nothing is a command that no image can have: a name of more than 255 bytes, which is the most
// that Linux' file systems take (NAME_MAX).
var nothing = "/" + strings.Repeat("nothing.", 32)

// Inputs is all that the plan of a pull depends on.
type Inputs struct {
	Challenge types.UID
	Target    Target
	// Node is the name of the node.
	Node string
	// PullSecret is the name of the copy of the pull secret, "" for none.
	PullSecret string
	Config     config.Challenge
	// Now distinguishes the pull from an earlier one of the same target, whose pods may not be gone yet.
	Now time.Time
}

// deployment pulls an image to a node. It is a Deployment because the operator may create
// Deployments anyway: it needs no right to create pods.
func deployment(in Inputs) *appsv1.Deployment {
	// The time is a part of the name: the same name would select pods of an earlier pull that are not gone yet.
	sum := sha256.Sum256([]byte(strings.Join([]string{string(in.Target.Node), in.Target.Image, in.Target.RuntimeClass, in.Now.UTC().Format(time.RFC3339Nano)}, "\n")))
	name := "pull-" + hex.EncodeToString(sum[:])[:20]
	labels := map[string]string{
		bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentPrepull, bergv1.PrepullLabel: name,
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceName(in.Challenge), Name: name,
			Annotations: map[string]string{
				bergv1.PrepullAnnotationImage: in.Target.Image, bergv1.PrepullAnnotationNode: in.Node + "/" + string(in.Target.Node),
				bergv1.PrepullAnnotationRuntimeClass: in.Target.RuntimeClass,
			},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas:             ptr.To[int32](1),
			RevisionHistoryLimit: ptr.To[int32](0),
			Strategy:             appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{bergv1.PrepullLabel: name}},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(in)},
		},
	}
	ownerFor(in.Challenge).SetOn(d)
	return d
}

// podSpec requests no resources: a pull takes no capacity from players.
func podSpec(in Inputs) corev1.PodSpec {
	spec := corev1.PodSpec{
		// By affinity and not by nodeName, so that the scheduler checks whether the node takes the pod.
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{
					{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{in.Node}},
				},
			}}},
		}},
		EnableServiceLinks:            ptr.To(false),
		AutomountServiceAccountToken:  ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](0),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](anyUser),
			RunAsGroup:     ptr.To[int64](anyUser),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:            containerName,
			Image:           in.Target.Image,
			ImagePullPolicy: in.Config.ImagePullPolicy,
			Command:         []string{nothing},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
	if in.Config.UserNamespaces.Use(in.Target.RuntimeClass) {
		spec.HostUsers = ptr.To(false)
	}
	if class := in.Target.RuntimeClass; class != "" {
		spec.RuntimeClassName = ptr.To(class)
	}
	if in.PullSecret != "" {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: in.PullSecret}}
	}
	return spec
}

// parseTarget returns the target of a Deployment's pull.
func parseTarget(d *appsv1.Deployment) Target {
	a := d.Annotations
	_, node, _ := strings.Cut(a[bergv1.PrepullAnnotationNode], "/")
	return Target{Node: types.UID(node), Image: a[bergv1.PrepullAnnotationImage], RuntimeClass: a[bergv1.PrepullAnnotationRuntimeClass]}
}
