package challengeinstance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

const (
	// releaseTime is how long the API server may need to release the node ports of a deleted
	// Service: it does so after it has sent the event.
	releaseTime     = 2 * time.Second
	releaseInterval = 100 * time.Millisecond
)

// applyService writes a Service. A recreated one requests the node ports that it had, so that the addresses which players
// know stay valid. If another Service uses one of them now, the API server allocates a new one.
func applyService(ctx context.Context, w apply.Writer, owner ownership.Owner, object client.Object) (client.Object, error) {
	desired := object.(*corev1.Service)
	// A rollout may give a container its first port or take the last one: its Service is headless without
	// ports, which no update changes. Players do not know its address, only node ports.
	w.Replace = w.Replace || desired.Spec.Type == corev1.ServiceTypeClusterIP
	live, err := apply.Apply(ctx, w, owner, desired)
	if len(refusedNodePorts(desired, err)) > 0 {
		// The event of the deletion comes before the port is free, so no event can lead to the next attempt. The wait happens only
		// for a Service that is created again, and holds one worker.
		_ = wait.PollUntilContextTimeout(ctx, releaseInterval, releaseTime, false, func(context.Context) (bool, error) {
			// The context of the poll would cancel the last attempt.
			live, err = apply.Apply(ctx, w, owner, desired)
			return len(refusedNodePorts(desired, err)) == 0, nil
		})
	}
	// Each round gives up the refused ports only. It ends, because a port without a requested number is never refused.
	for refused := refusedNodePorts(desired, err); len(refused) > 0; refused = refusedNodePorts(desired, err) {
		for _, i := range refused {
			desired.Spec.Ports[i].NodePort = 0
		}
		live, err = apply.Apply(ctx, w, owner, desired)
	}
	return live, err
}

// asServices converts objects to Services.
func asServices(objects []client.Object) []*corev1.Service {
	out := make([]*corev1.Service, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.(*corev1.Service))
	}
	return out
}

// refusedNodePorts returns the indexes of the ports whose node port the API server rejected.
// TCP and UDP on one number share the node port, and the error names only the first of them.
func refusedNodePorts(s *corev1.Service, err error) []int {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	numbers := sets.New[int32]()
	for i, p := range s.Spec.Ports {
		field := fmt.Sprintf("spec.ports[%d].nodePort", i)
		if slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == field }) {
			numbers.Insert(p.Port)
		}
	}
	var out []int
	for i, p := range s.Spec.Ports {
		if p.NodePort != 0 && numbers.Has(p.Port) {
			out = append(out, i)
		}
	}
	return out
}
