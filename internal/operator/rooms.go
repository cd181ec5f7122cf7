package operator

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/precedence"
	"github.com/bergctf/berg-operator/internal/kit/walltime"
	"github.com/bergctf/berg-operator/internal/quix/environment"
)

// room is what one API adds to the operator. A room that is closed costs nothing:
// no watch, no cache, no controller.
type room struct {
	// api as in ENABLED_APIS.
	api    string
	caches func(config.Config) map[client.Object]cache.ByObject
	setup  func(context.Context, ctrl.Manager, common) error
}

// common is what all rooms share.
type common struct {
	clock  clock.PassiveClock
	config config.Config
	writer apply.Writer
	// starts are what events let go first.
	starts *precedence.Precedence
	// presence is what every client and reader looks at before it asks for a kind, and
	// direct the one reader that does not.
	presence *optional.Presence
	direct   client.Reader
	// jumps tells when the clock has got ahead of the timers.
	jumps *walltime.Watcher
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
		&bergv1.Challenge{}:         all,
		&bergv1.ChallengeInstance{}: all,
		optional.Definition():       all,
		&eventsv1.Event{}:           {Label: labels.Everything(), Field: challengeinstance.SandboxFailures()},
		&corev1.Pod{}: {
			Label: labels.SelectorFromSet(labels.Set{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentPod}),
		},
	}
}

func setupInstances(ctx context.Context, mgr ctrl.Manager, c common) error {
	reconciler := &challengeinstance.Reconciler{
		Client: mgr.GetClient(),
		Live:   mgr.GetAPIReader(),
		Writer: c.writer,
		Starts: c.starts,
		Events: mgr.GetEventRecorder("berg-operator"),
		Clock:  c.clock,
		Jumps:  c.jumps,
		Config: c.config,

		Presence: c.presence,
		Direct:   c.direct,
	}
	if err := reconciler.SetupWithManager(ctx, mgr); err != nil || c.config.Process.OperatorConditionName == "" {
		return err
	}
	gate, err := newGate(ctx, mgr, c.config, c.clock)
	if err != nil {
		return fmt.Errorf("what holds up an upgrade: %w", err)
	}
	c.jumps.Wake(gate.LookAgain)
	return mgr.Add(gate)
}

func environmentCaches(cfg config.Config) map[client.Object]cache.ByObject {
	return environment.Caches(cfg.Environment)
}

func setupEnvironments(ctx context.Context, mgr ctrl.Manager, c common) error {
	return (&environment.Reconciler{
		Client: mgr.GetClient(),
		Writer: c.writer,
		Events: mgr.GetEventRecorder("environment-controller"),
		Clock:  c.clock,
		Config: c.config,
	}).SetupWithManager(ctx, mgr)
}
