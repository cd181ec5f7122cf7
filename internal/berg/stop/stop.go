// Package stop ends the pods of a namespace that is being deleted, so that its network policies outlive the processes.
//
// A pod without a grace period leaves the API as soon as its deletion is requested, while the kubelet still gives its processes
// two seconds. For Kubernetes the namespace has no pods then, and it deletes the policies. A deletion with a grace period keeps
// the pod in the API until the kubelet has seen its processes end, and Kubernetes keeps what else is in the namespace until its
// last pod is gone. This takes no longer: the namespace's controller begins five seconds after the deletion of the namespace.
package stop

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/apply"
)

const (
	// gracePeriodSeconds is the shortest that makes the kubelet confirm the end of a pod. The kubelet grants two seconds at
	// least: minimumGracePeriodInSeconds in its package kuberuntime.
	gracePeriodSeconds = 1
	// Late is how long a pod may take to end before its node counts as one that does not answer.
	Late = 10 * time.Second
	// Limit is how long a pod of a node that does not answer keeps the namespace, where something else confines it. Then it is
	// deleted from the API, and its processes may still run.
	Limit = time.Minute
)

// Remaining are the pods of a namespace that have not ended. The zero value means that none is left.
type Remaining struct {
	// Ending are pods that end, or will soon.
	Ending bool
	// Late are the names of those that should have ended, sorted. Pods that a finalizer holds are not among them: the
	// namespace's controller names these.
	Late []string
	// Again is when to look again without an event, zero for never.
	Again time.Duration
}

// Pods deletes the live pods that the cache shows in a namespace. The API server must have accepted the deletion of the
// namespace: otherwise a controller replaces them. Each new pod and each end of a pod requires another call. confined says that
// a policy confines the pods which does not end with the namespace. Without one, pods stay until their node has ended them, or
// the cluster has given the node up.
func Pods(ctx context.Context, c client.Client, namespace string, confined bool, now time.Time) (Remaining, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return Remaining{}, err
	}
	var left Remaining
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		wait, late, grace := due(pod, confined, now)
		if grace != nil {
			errs = append(errs, apply.Delete(ctx, c, pod.DeepCopy(), grace))
		}
		if late {
			left.Late = append(left.Late, pod.Name)
		}
		left.Ending = left.Ending || wait > 0 && !late
		if wait > 0 && (left.Again == 0 || wait < left.Again) {
			left.Again = wait
		}
	}
	slices.Sort(left.Late)
	return left, errors.Join(errs...)
}

// due returns what to do with a pod: how long to wait for its end, whether it is late, and the grace period of a deletion, nil
// for no deletion.
func due(pod *corev1.Pod, confined bool, now time.Time) (wait time.Duration, late bool, grace client.DeleteOption) {
	if pod.DeletionTimestamp == nil {
		return Late, false, client.GracePeriodSeconds(gracePeriodSeconds)
	}
	switch since := now.Sub(pod.DeletionTimestamp.Time); {
	case since < Late:
		return Late - since, false, nil
	case len(pod.Finalizers) > 0:
		return 0, false, nil
	case !confined:
		return 0, true, nil // the end of the pod leads to the next call
	case since < Limit:
		return Limit - since, true, nil
	default:
		return Limit, true, client.GracePeriodSeconds(0)
	}
}
