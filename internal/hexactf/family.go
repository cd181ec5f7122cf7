// Package hexactf is the family of HexaCTF challenges: its entry point for the operator.
package hexactf

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/hexactf/challenge"
	"github.com/bergctf/berg-operator/internal/hexactf/kafka"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/family"
)

// New returns the family. Its settings are read into cfg.
func New(cfg *config.HexaCTF) family.Family {
	return family.Family{
		API:         hexactfv1.GroupVersion.Group,
		Settings:    cfg.Section(),
		AddToScheme: runtime.SchemeBuilder{hexactfv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme},
		Cache:       caches,
		Setup:       func(ctx context.Context, deps family.Dependencies) error { return setup(ctx, deps, *cfg) },
		Busy:        family.NewBusy(func() client.ObjectList { return &hexactfv1.ChallengeList{} }, building),
	}
}

// caches keeps only objects that belong to challenges: a cluster may have many others of the same kinds.
func caches() cache.Options {
	all := ctrlcache.ByObject{Label: labels.Everything()}
	return cache.Options{
		Selector: challenge.OwnershipLabels.Selector(),
		ByObject: map[client.Object]ctrlcache.ByObject{
			&hexactfv1.Challenge{}:           all,
			&hexactfv1.ChallengeDefinition{}: all,
		},
		Trim:    trim,
		Domains: []string{hexactfv1.GroupVersion.Group},

		Finalizers: []string{hexactfv1.Finalizer},
	}
}

// trim drops fields that the family does not read. The family writes patches, or starts from the API server's object,
// so the dropped fields are not lost there. A field that a controller newly reads must be kept here.
func trim(o client.Object) {
	switch o := o.(type) {
	case *corev1.Pod:
		challenge.TrimPod(o)
	case *corev1.Service:
		o.Status = corev1.ServiceStatus{}
	case *appsv1.Deployment:
		challenge.TrimDeployment(o)
	}
}

// setup fails for settings of Kafka that can never work. A broker that does not answer is no reason.
func setup(ctx context.Context, deps family.Dependencies, cfg config.HexaCTF) error {
	mgr := deps.Manager
	reconciler := &challenge.Reconciler{
		Access: deps.Access("challenge-operator"),
		Config: cfg, Namespace: deps.Namespace,
	}
	if cfg.Kafka.Enabled() {
		publisher, err := kafka.New(cfg.Kafka)
		if err != nil {
			return err
		}
		if err := mgr.Add(publisher); err != nil {
			return err
		}
		reconciler.Publisher, reconciler.Reason = publisher, publisher.Reason
	}
	return reconciler.SetupWithManager(ctx, mgr)
}

// building reports whether a challenge waits for the operator. In state Error it waits for a person.
func building(c *hexactfv1.Challenge) bool {
	state := c.Status.CurrentStatus.State
	return state != hexactfv1.StateRunning && state != hexactfv1.StateError
}
