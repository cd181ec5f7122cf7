package challenge

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// service is the Service of a component. published is the node port that players know: a Service that is created again
// asks for it.
func service(in Inputs, component hexactfv1.Component, published int32) *corev1.Service {
	ports := slices.Clone(component.Service.Spec.Ports)
	if published != 0 && ports[0].NodePort == 0 {
		ports[0].NodePort = published
	}
	return &corev1.Service{
		ObjectMeta: in.meta(in.prefix(component.Name)+serviceSuffix, in.labels(component.Name)),
		Spec: corev1.ServiceSpec{
			Type:     cmp.Or(component.Service.Spec.Type, corev1.ServiceTypeClusterIP),
			Selector: in.selector(component.Name),
			Ports:    ports,
		},
	}
}

const (
	// releaseTimeout is how long the API server may take to release the node port of a deleted Service: it does so after
	// the event of the deletion.
	releaseTimeout  = 2 * time.Second
	releaseInterval = 100 * time.Millisecond
)

// serviceWriter writes the Services of a plan. If another Service has taken the published node port, the API server
// allocates another one. A node port that the definition names is never given up. Players know the node port, so the API server
// is asked for the same one as long as it may become free.
func serviceWriter(published int32) func(context.Context, apply.Writer, ownership.Owner, client.Object) (client.Object, error) {
	return func(ctx context.Context, w apply.Writer, owner ownership.Owner, object client.Object) (client.Object, error) {
		desired := object.(*corev1.Service)
		live, err := apply.Apply(ctx, w, owner, desired)
		if published == 0 || desired.Spec.Ports[0].NodePort != published || !nodePortRefused(err) {
			return live, err
		}
		_ = wait.PollUntilContextTimeout(ctx, releaseInterval, releaseTimeout, false, func(context.Context) (bool, error) {
			// With the context of the poll, the last attempt would be cut off.
			live, err = apply.Apply(ctx, w, owner, desired)
			return !nodePortRefused(err), nil
		})
		if nodePortRefused(err) {
			desired.Spec.Ports[0].NodePort = 0
			live, err = apply.Apply(ctx, w, owner, desired)
		}
		return live, err
	}
}

// nodePortRefused reports whether a Service was refused for its first node port.
func nodePortRefused(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return strings.HasPrefix(c.Field, "spec.ports[0].nodePort")
	})
}

// serviceNodePort returns the node port of a Service, 0 if it has none.
func serviceNodePort(live client.Object) int32 {
	s, ok := live.(*corev1.Service)
	if !ok || s.Spec.Type != corev1.ServiceTypeNodePort || len(s.Spec.Ports) == 0 {
		return 0
	}
	return s.Spec.Ports[0].NodePort
}
