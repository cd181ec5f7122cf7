// Package quix is the family of Environments: its entry point for the operator.
package quix

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/quix/environment"
)

// New returns the family. Its settings are read into cfg.
func New(cfg *config.Quix) family.Family {
	return family.Family{
		API:         quixv1.GroupVersion.Group,
		Settings:    cfg.Section(),
		AddToScheme: runtime.SchemeBuilder{quixv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme},
		Cache:       func() cache.Options { return caches(*cfg) },
		Setup: func(ctx context.Context, deps family.Dependencies) error {
			fence, err := deps.Policies.Follow(ctx, admissionpolicy.Fence, admissionpolicy.Install)
			if err != nil {
				return err
			}
			return (&environment.Reconciler{
				Access: deps.Access("environment-controller"),
				Fence:  fence,
				Config: *cfg,
			}).SetupWithManager(ctx, deps.Manager)
		},
	}
}

func caches(cfg config.Quix) cache.Options {
	return cache.Options{
		ByObject: map[client.Object]ctrlcache.ByObject{
			&quixv1.Environment{}: {Label: labels.Everything(), SyncPeriod: &cfg.CacheSyncPeriod},
			&corev1.Namespace{}:   {Label: labels.Everything()}, // one of the same name that belongs to another owner must be found
			&rbacv1.RoleBinding{}: {Label: environment.RoleBindingLabels.Selector()},
			&rbacv1.ClusterRole{}: {
				Label: labels.Everything(),
				Field: fields.OneTermEqualSelector(metav1.ObjectNameField, cfg.ClusterRoleName),
			},
		},
		Trim:    trim,
		Domains: []string{quixv1.GroupVersion.Group},

		Finalizers: []string{quixv1.Finalizer},
	}
}

// trim keeps only the identity of a namespace that belongs to another owner: a cluster may have thousands of them.
func trim(o client.Object) {
	ns, ok := o.(*corev1.Namespace)
	if !ok || ns.Labels[quixv1.LabelManagedBy] == quixv1.ManagedBy || ns.Labels[quixv1.LabelEnvironmentID] != "" || ns.Annotations[quixv1.AnnotationUID] != "" || ns.DeletionTimestamp != nil {
		return
	}
	cache.KeepIdentity(ns)
}
