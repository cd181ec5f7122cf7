package operator

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/quix/environment"
)

// room is what one API adds to the operator. A room that is closed costs nothing:
// no watch, no cache, no controller.
type room struct {
	// api as in ENABLED_APIS.
	api    string
	caches func(config.Config) map[client.Object]cache.ByObject
	setup  func(context.Context, ctrl.Manager, config.Config, Options, apply.Writer) error
}

var rooms = []room{
	{config.APIBerg, instanceCaches, setupInstances},
	{config.APIQuix, environmentCaches, setupEnvironments},
}

func openRooms(cfg config.Config) []room {
	return slices.DeleteFunc(slices.Clone(rooms), func(r room) bool { return !slices.Contains(cfg.Process.EnabledAPIs, r.api) })
}

func instanceCaches(config.Config) map[client.Object]cache.ByObject {
	all := cache.ByObject{Label: labels.Everything()}
	return map[client.Object]cache.ByObject{
		&bergv1.Challenge{}:            all,
		&bergv1.ChallengeInstance{}:    all,
		challengeinstance.Definition(): all,
		&corev1.Pod{}: {
			Label: labels.SelectorFromSet(labels.Set{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentPod}),
		},
	}
}

func setupInstances(ctx context.Context, mgr ctrl.Manager, cfg config.Config, opts Options, writer apply.Writer) error {
	reconciler := &challengeinstance.Reconciler{
		Client: mgr.GetClient(),
		Live:   mgr.GetAPIReader(),
		Writer: writer,
		Events: mgr.GetEventRecorder("berg-operator"),
		Clock:  opts.Clock,
		Config: cfg,
	}
	if err := reconciler.SetupWithManager(ctx, mgr); err != nil || cfg.Process.OperatorConditionName == "" {
		return err
	}
	gate, err := newGate(ctx, mgr, cfg, opts.Clock)
	if err != nil {
		return fmt.Errorf("what holds up an upgrade: %w", err)
	}
	return mgr.Add(gate)
}

func environmentCaches(cfg config.Config) map[client.Object]cache.ByObject {
	return environment.Caches(cfg.Environment)
}

func setupEnvironments(ctx context.Context, mgr ctrl.Manager, cfg config.Config, opts Options, writer apply.Writer) error {
	return (&environment.Reconciler{
		Client: mgr.GetClient(),
		Writer: writer,
		Events: mgr.GetEventRecorder("environment-controller"),
		Clock:  opts.Clock,
		Config: cfg,
	}).SetupWithManager(ctx, mgr)
}
