package apply

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// immutable reports whether no update leads to the desired object: it has the field immutable, it
// is a binding of another role, or it is a Service that has a cluster IP and must be headless, or
// the reverse. The API server silently keeps a Service headless.
func immutable(desired, live client.Object) bool {
	switch live := live.(type) {
	case *corev1.ConfigMap:
		return ptr.Deref(live.Immutable, false)
	case *corev1.Secret:
		return ptr.Deref(live.Immutable, false)
	case *rbacv1.RoleBinding:
		return desired.(*rbacv1.RoleBinding).RoleRef != live.RoleRef
	case *rbacv1.ClusterRoleBinding:
		return desired.(*rbacv1.ClusterRoleBinding).RoleRef != live.RoleRef
	case *corev1.Service:
		return headless(desired.(*corev1.Service)) != headless(live)
	default:
		return false
	}
}

func headless(service *corev1.Service) bool {
	return service.Spec.ClusterIP == corev1.ClusterIPNone
}

// changeRefused reports whether an update was rejected for its content. Admission webhooks
// answer BadRequest. Forbidden is most often a missing right.
func changeRefused(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// replaceable reports whether an update was rejected because the change is not allowed, and not
// because the desired object is invalid. The rejection does not say which, and each API words
// it differently. So a dry run creates the object: the API server validates the whole object
// before it finds that the name exists. After any other answer the existing object is kept,
// since it is better than none. Two requests for each refused update are affordable, because the caller comes back with
// exponential backoff.
func replaceable[T client.Object](ctx context.Context, w Writer, desired T, refusal error) bool {
	if !changeRefused(refusal) {
		return false
	}
	trial := desired.DeepCopyObject().(client.Object)
	if service, ok := trial.(*corev1.Service); ok {
		forgetNodePorts(service) // the existing Service still has them
	}
	err := w.Client.Create(ctx, trial, client.DryRunAll, client.FieldOwner(w.Manager), client.DisableReadYourWritesConsistency)
	return err == nil || apierrors.IsAlreadyExists(err)
}

// replace deletes exactly the observed object, and creates the desired one. If finalizers keep
// the old one, it returns a *TerminatingError. Between the two requests the object is missing. If the process is killed there,
// the next reconciliation finds no object and creates it.
func replace[T client.Object](ctx context.Context, w Writer, owner ownership.Owner, to write, desired, live T) (T, error) {
	var none T
	// Reads wait for the creation that follows. They must not wait for the deletion: that
	// would never end if the cache omits the object.
	if err := Delete(ctx, w.Client, live, client.DisableReadYourWritesConsistency); err != nil {
		return none, err
	}
	created, err := create(ctx, w, owner, to, desired)
	if apierrors.IsAlreadyExists(err) {
		return none, &TerminatingError{Kind: to.kind.Kind, Name: live.GetName()}
	}
	return created, err
}

// forgetNodePorts removes the node ports, so that the API server allots them.
func forgetNodePorts(service *corev1.Service) {
	for i := range service.Spec.Ports {
		service.Spec.Ports[i].NodePort = 0
	}
}

func asksForNodePorts(service *corev1.Service) bool {
	return slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
}
