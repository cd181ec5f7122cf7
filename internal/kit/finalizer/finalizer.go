// Package finalizer keeps a custom resource until what belongs to it is gone.
package finalizer

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Ensure persists a finalizer. It comes before anything else is written, so that
// no deletion goes by unseen.
func Ensure(ctx context.Context, c client.Client, obj client.Object, name string) error {
	if controllerutil.ContainsFinalizer(obj, name) {
		return nil
	}
	before := obj.DeepCopyObject().(client.Object)
	controllerutil.AddFinalizer(obj, name)
	return c.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// Remove lets an object go.
func Remove(ctx context.Context, c client.Client, obj client.Object, name string) error {
	free := obj.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(free, name) {
		return nil
	}
	// Nothing can be read back of an object that is gone, so there is no write to
	// wait for.
	return client.IgnoreNotFound(c.Patch(ctx, free,
		client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{}), client.DisableReadYourWritesConsistency))
}

// HeldBack returns what keeps a namespace from going, as its controller says, or
// the finalizers of others when that controller has done its part; "" if nothing
// does.
func HeldBack(ns *corev1.Namespace) string {
	if ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) == 0 && len(ns.Finalizers) > 0 {
		return "it has the finalizers " + strings.Join(ns.Finalizers, ", ")
	}
	var why []string
	for _, c := range ns.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionContentFailure,
			corev1.NamespaceDeletionGVParsingFailure, corev1.NamespaceFinalizersRemaining:
			why = append(why, c.Message)
		}
	}
	return strings.Join(why, "; ")
}
