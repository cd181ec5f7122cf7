package tunnelproxy

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// createPod creates a pod unless it is there. One that is there stays as it is: another version
// of the operator must not end a pair that runs.
func createPod(ctx context.Context, w apply.Writer, owner ownership.Owner, desired *corev1.Pod) error {
	live := &corev1.Pod{ObjectMeta: desired.ObjectMeta}
	exists, err := apply.Find(ctx, w, live)
	if err != nil {
		return err
	}
	if exists {
		if !owner.Owns(live) {
			return &ownership.RefusedError{Kind: "Pod", Namespace: desired.Namespace, Name: desired.Name}
		}
		return nil
	}
	owner.SetOn(desired)
	err = w.Client.Create(ctx, desired, client.FieldOwner(w.Manager))
	if apierrors.IsAlreadyExists(err) {
		return outcome.ErrConflict
	}
	return err
}

// stopPods deletes the pods of a pair in a namespace, and reports whether they are gone.
func stopPods(ctx context.Context, w apply.Writer, p *tunnelv1.ContainerNetworkTunnelProxy, namespace string) (gone bool, err error) {
	var pods corev1.PodList
	err = w.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{tunnelv1.LabelProxy: string(p.UID)})
	if err != nil {
		return false, err
	}
	gone = true
	for i := range pods.Items {
		if pod := &pods.Items[i]; ownerOf(p).Owns(pod) {
			gone = false
			if pod.DeletionTimestamp == nil {
				if err := apply.Delete(ctx, w.Client, pod); err != nil {
					return false, err
				}
			}
		}
	}
	return gone, nil
}

// ended returns why a pod does not run any more, "" while it may.
func ended(what string, pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil {
			text := exitText(what, t.ExitCode)
			if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
				text += " (" + t.Reason + ")"
			}
			if last := lastWords(t.Message); last != "" {
				text += "; it said last: " + last
			}
			return text
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		return strings.TrimRight(fmt.Sprintf("the pod of %s has ended: %s %s", what, pod.Status.Reason, pod.Status.Message), " :")
	case pod.DeletionTimestamp != nil:
		return fmt.Sprintf("the pod of %s is being deleted", what)
	}
	return ""
}

const (
	// lastLines and longestLastWords bound what is told of the log of a container that has ended.
	lastLines, maxLastWords = 2, 512
)

// lastWords returns the last of what a container said, as its status has it. The log of a pod
// goes with the pod.
func lastWords(said string) string {
	var last []string
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); line != "" {
			last = append(last, line)
		}
	}
	last = last[max(0, len(last)-lastLines):]
	return conditions.Shorten(strings.ToValidUTF8(strings.Join(last, " | "), "?"), maxLastWords)
}

// passing are the reasons for which a container waits that pass by themselves.
var passing = map[string]bool{"": true, "ContainerCreating": true, "PodInitializing": true}

// waiting returns why a pod is not ready yet, as far as it says.
func waiting(what string, pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && !passing[w.Reason] {
			return fmt.Sprintf("%s cannot start: %s", what, strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("%s cannot be scheduled: %s", what, c.Message)
		}
	}
	return ""
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// containerID returns that of the client proxy. Where a runtime tells none, the pod is it.
func containerID(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == clientContainer && s.ContainerID != "" {
			return s.ContainerID
		}
	}
	return "pod://" + string(pod.UID)
}

// TrimPod keeps of a pod what pairs are judged by.
func TrimPod(p *corev1.Pod) {
	spec := corev1.PodSpec{NodeName: p.Spec.NodeName}
	for _, c := range p.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{Name: c.Name, Ports: c.Ports})
	}
	p.Spec = spec
	var conditions []corev1.PodCondition
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled {
			conditions = append(conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, Message: c.Message})
		}
	}
	p.Status.Conditions = conditions
}

func proxyOf(o client.Object) (name string, uid types.UID, ok bool) {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "ContainerNetworkTunnelProxy" && strings.HasPrefix(owner.APIVersion, tunnelv1.GroupVersion.Group+"/") {
			return owner.Name, owner.UID, true
		}
	}
	return "", "", false
}
