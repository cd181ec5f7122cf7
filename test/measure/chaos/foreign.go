package main

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

// setUpForeign creates what is not the operator's, however much it looks so: the
// namespaces of some owners, and objects with our labels in another namespace.
func (w *world) setUpForeign(ctx context.Context) error {
	ours := map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentPod}
	const elsewhere = "challenge-of-another-owner"
	names := []string{elsewhere}
	for _, l := range w.lives {
		if l.taken {
			names = append(names, manifests.NamespaceName(l.owner))
		}
	}
	var all []client.Object
	for i, name := range names {
		var labels map[string]string
		if i%2 == 0 {
			labels = ours
		}
		in := metav1.ObjectMeta{Namespace: name, Name: "web", Labels: labels}
		selector := &metav1.LabelSelector{MatchLabels: ours}
		all = append(all,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}},
			&corev1.ConfigMap{ObjectMeta: in, Data: map[string]string{"content": "mine"}},
			&corev1.Service{ObjectMeta: in, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
			&policyv1.PodDisruptionBudget{ObjectMeta: in, Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: selector,
			}},
			&gatewayv1.HTTPRoute{ObjectMeta: in},
			&appsv1.Deployment{ObjectMeta: in, Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](0), Selector: selector,
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: ours},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/mine:1"}}},
				},
			}},
		)
	}
	for _, object := range all {
		if err := w.retry(ctx, func(ctx context.Context) error { return w.client.Create(ctx, object) }); err != nil {
			return fmt.Errorf("create what is foreign: %w", err)
		}
	}
	w.foreign = all
	return nil
}

// foreignUntouched returns what was done to anything foreign.
func (w *world) foreignUntouched(ctx context.Context) error {
	var errs []error
	for _, before := range w.foreign {
		now := before.DeepCopyObject().(client.Object)
		what := fmt.Sprintf("%T %s/%s, which is foreign,", before, before.GetNamespace(), before.GetName())
		gone := false
		err := w.retry(ctx, func(ctx context.Context) error {
			err := w.client.Get(ctx, client.ObjectKeyFromObject(before), now)
			gone = apierrors.IsNotFound(err)
			return client.IgnoreNotFound(err)
		})
		if err != nil {
			return err
		}
		if gone {
			errs = append(errs, fmt.Errorf("%s is gone", what))
			continue
		}
		if now.GetUID() != before.GetUID() || now.GetGeneration() > before.GetGeneration() || now.GetDeletionTimestamp() != nil ||
			fmt.Sprint(now.GetLabels()) != fmt.Sprint(before.GetLabels()) {
			errs = append(errs, fmt.Errorf("%s was changed", what))
		}
		for _, m := range now.GetManagedFields() {
			if m.Manager == "berg-operator" {
				errs = append(errs, fmt.Errorf("%s was written by the operator", what))
			}
		}
	}
	return errors.Join(errs...)
}
