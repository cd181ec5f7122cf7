// Package stop ends the pods of a namespace that is being deleted, so that its network policies outlive the processes.
//
// A pod without a grace period leaves the API as soon as its deletion is requested, while the kubelet still gives its
// processes two seconds. For Kubernetes the namespace has no pods then, and it deletes the policies. A deletion with a
// grace period keeps the pod in the API until the kubelet has observed the end of its processes, and Kubernetes keeps the
// other objects of the namespace until its last pod is gone. This takes no longer: the namespace's controller begins five
// seconds after the deletion of the namespace.
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
	// gracePeriodSeconds is the minimum that makes the kubelet confirm the end of a pod. The kubelet grants two seconds at
	// least: minimumGracePeriodInSeconds in its package kuberuntime.
	gracePeriodSeconds = 1
	// Late is the time after which a pod that has not ended is late: its node probably does not answer.
	Late = 10 * time.Second
	// Limit is the time during which a late pod keeps the namespace, where a policy that outlives the namespace confines
	// the pod. Then the pod is deleted from the API, and its processes may still run.
	Limit = time.Minute
)

// Remaining are the pods of a namespace that have not ended. The zero value means that none is left.
type Remaining struct {
	// Ending: some pods have time left to end.
	Ending bool
	// Late are the names of the late pods, sorted. They do not include pods with a finalizer: the namespace's controller
	// names these.
	Late []string
	// Again is the delay until the next call without an event, zero for never.
	Again time.Duration
}

// Pods deletes the live pods that the cache shows in a namespace. The API server must have accepted the deletion of the
// namespace: otherwise a controller replaces them. Each new pod and each end of a pod requires another call. confined says
// that a policy which does not end with the namespace confines the pods. Without such a policy, pods stay until their node
// has ended them, or the cluster has given the node up: their deletion from the API would let Kubernetes delete the
// policies while their processes may run.
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

// due returns the action for a pod: how long to wait for its end, whether it is late, and the grace period of a deletion,
// nil for no deletion. The deletion timestamp of a pod is in the future by its grace period: the times count from the end that it
// announces. The comparison with the clock of the operator is off by the skew of the two, which moves Late and Limit.
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
