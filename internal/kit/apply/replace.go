package apply

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sealed reports whether it is known without asking that the API server refuses to change
// an object into the one that is desired: somebody has made it immutable, or what a
// binding grants is another role.
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
	default:
		return false
	}
}

// changeRefused reports whether an update was refused for what it says. Admission webhooks say
// BadRequest. Forbidden is most often a right that is missing.
func changeRefused(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// replaceable reports whether an update was refused because of what is changed, and not of
// what is wanted. A refusal does not tell, and each API has its own words for it. So the API
// server is asked to create the object, without doing it: it looks at the whole object
// before it finds that there is one of that name. Whatever else it answers, the object
// that exists is better than none.
func replaceable[T client.Object](ctx context.Context, w Writer, desired T, refusal error) bool {
	if !changeRefused(refusal) {
		return false
	}
	trial := desired.DeepCopyObject().(client.Object)
	if service, ok := trial.(*corev1.Service); ok {
		forgetNodePorts(service) // the Service that exists has them still
	}
	err := w.Client.Create(ctx, trial, client.DryRunAll, client.FieldOwner(w.Manager), client.DisableReadYourWritesConsistency)
	return err == nil || apierrors.IsAlreadyExists(err)
}

// replace deletes exactly the object that was seen, and creates the desired one. Where
// finalizers keep the old one, it returns a *TerminatingError.
func replace[T client.Object](ctx context.Context, w Writer, to write, desired, live T) (T, error) {
	var none T
	// Reads wait for the creation that follows. For the deletion they would wait
	// for ever where the cache leaves the object out.
	if err := Delete(ctx, w.Client, live, client.DisableReadYourWritesConsistency); err != nil {
		return none, err
	}
	created, err := create(ctx, w, to, desired)
	if apierrors.IsAlreadyExists(err) {
		return none, &TerminatingError{Kind: to.kind.Kind, Name: live.GetName()}
	}
	return created, err
}

// forgetNodePorts leaves it to the API server which node ports a Service gets.
func forgetNodePorts(service *corev1.Service) {
	for i := range service.Spec.Ports {
		service.Spec.Ports[i].NodePort = 0
	}
}

func asksForNodePorts(service *corev1.Service) bool {
	return slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
}
