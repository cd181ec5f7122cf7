package berg

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/check"
	"github.com/bergctf/berg-operator/internal/berg/digests"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/berg/prepull"
	"github.com/bergctf/berg-operator/internal/kit/cache"
)

// domains begin the labels and annotations of the objects of instances.
var domains = []string{bergv1.GroupVersion.Group, "app.kubernetes.io"}

// trim drops fields that the family does not read. The family writes patches, or starts from the
// API server's object, so the dropped fields are not lost there. A field that a reader of the cache newly needs must be kept
// here.
func trim(o client.Object) {
	if labelled(o) && !inOwnNamespace(o.GetNamespace()) {
		wanted, wantsPrepull := o.GetLabels()[bergv1.LabelPrepullChallenge]
		warm := o.GetLabels()[bergv1.LabelWarm]
		cache.KeepIdentity(o)
		if wantsPrepull {
			o.SetLabels(map[string]string{bergv1.LabelPrepullChallenge: wanted, bergv1.LabelWarm: warm})
		}
		return
	}
	switch o := o.(type) {
	case *corev1.Pod:
		switch o.Labels[bergv1.LabelComponent] {
		case bergv1.ComponentSolver:
			check.TrimPod(o)
		case bergv1.ComponentPrepull:
			prepull.TrimPod(o)
		default:
			trimPod(o)
		}
	case *corev1.Node:
		prepull.TrimNode(o)
	case *batchv1.Job:
		check.TrimJob(o)
	case *corev1.Service:
		o.Status = corev1.ServiceStatus{}
	case *appsv1.Deployment:
		trimDeployment(o)
	case *corev1.Namespace:
		if !inOwnNamespace(o.Name) {
			cache.KeepIdentity(o)
		}
	case *appsv1.DaemonSet:
		ready := o.Status.NumberReady
		cache.KeepIdentity(o)
		o.Status.NumberReady = ready
	case *eventsv1.Event:
		status.TrimEvent(o)
	case *policyv1.PodDisruptionBudget:
		o.Status = policyv1.PodDisruptionBudgetStatus{}
	case *gatewayv1.HTTPRoute:
		o.Status.Parents = status.TrimParents(o.Status.Parents)
		cache.Bound(o, domains...)
	case *gatewayv1.TLSRoute:
		o.Status.Parents = status.TrimParents(o.Status.Parents)
		cache.Bound(o, domains...)
	case *discoveryv1.EndpointSlice:
		status.TrimEndpoints(o)
	case *ciliumv2.CiliumNetworkPolicy:
		cache.Bound(o, domains...)
	}
}

// trimWithoutImages is trim for an operator that pulls no images in advance: the list of images is most of a node.
func trimWithoutImages(o client.Object) {
	if n, isNode := o.(*corev1.Node); isNode {
		nodes.Trim(n)
		return
	}
	trim(o)
}

// labelled reports whether objects of a kind are found by a label alone. Everyone who may write in
// one namespace may set it, so it must not decide how much is kept in memory.
func labelled(o client.Object) bool {
	switch o.(type) {
	case *corev1.ConfigMap, *corev1.Service, *corev1.Pod, *appsv1.Deployment, *batchv1.Job, *networkingv1.NetworkPolicy,
		*policyv1.PodDisruptionBudget, *discoveryv1.EndpointSlice, *gatewayv1.HTTPRoute, *gatewayv1.TLSRoute, *ciliumv2.CiliumNetworkPolicy:
		return true
	default:
		return false
	}
}

// inOwnNamespace reports whether the operator builds in a namespace of such a name.
func inOwnNamespace(name string) bool {
	return slices.ContainsFunc([]string{manifests.NamespacePrefix, check.NamespacePrefix, prepull.NamespacePrefix},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// trimDeployment keeps only the ReplicaFailure condition of a Deployment's status.
func trimDeployment(d *appsv1.Deployment) {
	var refusals []appsv1.DeploymentCondition
	for _, c := range d.Status.Conditions {
		if status.Refusal(c) {
			c.LastUpdateTime = metav1.Time{}
			refusals = append(refusals, c)
		}
	}
	d.Status = appsv1.DeploymentStatus{Conditions: refusals}
}

// podLabels are the labels by which pods are found.
var podLabels = sets.New(bergv1.LabelManagedBy, bergv1.LabelComponent, bergv1.LabelContainer)

// trimPod keeps the fields that the status of an instance is computed from. It keeps a pod's
// environment, which holds the flag, out of the cache.
func trimPod(pod *corev1.Pod) {
	pod.ManagedFields = nil
	id, annotated := pod.Annotations[bergv1.LabelInstanceID]
	notified := pod.Annotations[bergv1.AnnotationFlagAt]
	pod.Annotations = nil
	if annotated {
		pod.Annotations = map[string]string{bergv1.LabelInstanceID: id}
		if notified != "" {
			pod.Annotations[bergv1.AnnotationFlagAt] = notified
		}
	}
	pod.OwnerReferences = nil
	for name, value := range pod.Labels {
		// Only the name of a namespace that was prepared does not have the owner.
		late := name == bergv1.LabelOwnerID && pod.Namespace != manifests.NamespaceName(value)
		if !podLabels.Has(name) && !late {
			delete(pod.Labels, name)
		}
	}
	compared := map[string]bool{}
	for _, c := range pod.Spec.Containers {
		compared[c.Name] = c.ImagePullPolicy == corev1.PullAlways
	}
	pod.Spec = corev1.PodSpec{}
	kept := corev1.PodStatus{Phase: pod.Status.Phase, HostIP: pod.Status.HostIP}
	if !status.PodReady(pod) {
		kept.PodIP = pod.Status.PodIP
	}
	if kept.Phase == corev1.PodFailed || kept.Phase == corev1.PodSucceeded {
		kept.Reason, kept.Message = pod.Status.Reason, pod.Status.Message
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled ||
			c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue {
			kept.Conditions = append(kept.Conditions, status.TrimCondition(c))
		}
	}
	kept.InitContainerStatuses = status.TrimInitContainers(pod.Status.InitContainerStatuses)
	for _, s := range pod.Status.ContainerStatuses {
		if s.State != (corev1.ContainerState{}) {
			container := status.TrimContainer(s)
			if compared[s.Name] {
				container.ImageID = digests.Short(s.ImageID)
			}
			kept.ContainerStatuses = append(kept.ContainerStatuses, container)
		}
	}
	pod.Status = kept
}
