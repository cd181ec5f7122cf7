package backend

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
)

// CreatePod creates a pod unless it exists. One that exists is not changed: another version of the operator must not end
// a pair that runs.
func CreatePod(ctx context.Context, w apply.Writer, owner ownership.Owner, desired *corev1.Pod) error {
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

// StopPods deletes the pods of a pair in a namespace, "" for all, and reports whether they are gone. The list waits for own
// writes, so a pod that was created a moment ago is not missed.
func StopPods(ctx context.Context, w apply.Writer, p *tunnelv1.ContainerNetworkTunnelProxy, namespace string) (gone bool, err error) {
	var pods corev1.PodList
	err = w.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{tunnelv1.LabelProxy: string(p.UID)})
	if err != nil {
		return false, err
	}
	gone = true
	for i := range pods.Items {
		if pod := &pods.Items[i]; pairobjects.OwnerFor(p).Owns(pod) {
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
