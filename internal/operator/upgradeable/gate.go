package upgradeable

import (
	"context"
	"fmt"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

const (
	// spacing is the minimum time between two checks of the work, which changes many
	// times a second in a busy hour.
	spacing = time.Second
	// maxInterval is the maximum time between two checks while a hold has an end.
	maxInterval = 10 * time.Second
	// retryAfter is the delay after a failed write. The first write may fail: OLM creates
	// the OperatorCondition and the right to write it while the operator starts.
	retryAfter = 10 * time.Second
	// stopTimeout is the timeout of the last write. The lease is released after it.
	stopTimeout = 5 * time.Second
)

// Watched is a kind and the informers for it.
type Watched struct {
	Informers ctrlcache.Informers
	Kind      client.Object
}

// Gate keeps the condition Upgradeable up to date with the work in flight. It is a
// runnable of the manager; only the leader writes.
type Gate struct {
	// Key of the OperatorCondition.
	Key client.ObjectKey
	// Client must read from the API server: OLM grants get, update and patch of
	// this one object, and a cache would need list and watch.
	Client client.Client
	// Watched are the kinds whose objects are the work.
	Watched []Watched
	// Work lists when each job in flight began.
	Work func(context.Context) ([]time.Time, error)
	// Bounds of a hold.
	Bounds Bounds
	// Clock is the time.
	Clock clock.PassiveClock
	// ShutDown reports whether the process was asked to stop. It also stops when it
	// loses the lease, but then another replica writes.
	ShutDown func() bool

	// known is the condition that was read or written last.
	known    *metav1.Condition
	read     bool
	lastBusy time.Time
}

// NeedLeaderElection has the manager run the gate in the leader only.
func (g *Gate) NeedLeaderElection() bool { return true }

// Start runs the gate until the context ends.
func (g *Gate) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1) // it has a value when something may have changed since the last check
	for _, w := range g.Watched {
		stop, err := w.notify(ctx, changed)
		if err != nil {
			return fmt.Errorf("watch the work that delays an upgrade: %w", err)
		}
		defer stop()
	}

	// The process does not know how long it was quiet before its start, so it assumes not at all.
	g.lastBusy = g.Clock.Now()
	for ctx.Err() == nil {
		retryAfter := g.check(ctx)
		var due <-chan time.Time
		if retryAfter > 0 {
			// A timer for a time of day ends late after the clock was set forward.
			due = time.After(min(retryAfter, maxInterval))
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-due:
		}
		// Changes that arrive in this pause are read by the one check after it: a burst of changes costs one write,
		// not one each.
		select {
		case <-ctx.Done():
		case <-time.After(spacing):
		}
	}
	// Only a deliberate end of the process releases the hold. A leader that has lost its lease must not write any
	// more.
	if g.ShutDown() {
		g.leave(ctx)
	}
	return nil
}

// notify reports every change of the kind to changed.
func (w Watched) notify(ctx context.Context, changed chan<- struct{}) (stop func(), err error) {
	informer, err := w.Informers.GetInformer(ctx, w.Kind)
	if err != nil {
		return nil, err
	}
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, object any) { notify(object) }, DeleteFunc: notify,
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = informer.RemoveEventHandler(registration) }, nil
}

// check decides, writes if the condition changes, and returns when to check again.
func (g *Gate) check(ctx context.Context) time.Duration {
	// It is read once: OLM grants no watch, and each check would otherwise be a request.
	if !g.read {
		object := &operatorsv2.OperatorCondition{}
		if err := g.Client.Get(ctx, g.Key, object); err != nil {
			return g.failed(ctx, "read", err)
		}
		g.known, g.read = meta.FindStatusCondition(object.Spec.Conditions, operatorsv2.Upgradeable), true
	}
	work, err := g.Work(ctx)
	if err != nil {
		return g.failed(ctx, "list the work in flight and write", err)
	}
	now := g.Clock.Now()
	if g.Bounds.Busy(work, now) {
		g.lastBusy = now
	}
	wanted, retryAfter := g.Bounds.Decide(g.known, work, g.lastBusy, now)
	if g.known != nil && same(*g.known, wanted) {
		return retryAfter
	}
	if err := g.write(ctx, wanted); err != nil {
		return g.failed(ctx, "write", err)
	}
	log.FromContext(ctx).Info("changed the condition Upgradeable of the OperatorCondition", "operatorCondition", g.Key.Name,
		"upgradeable", wanted.Status, "reason", wanted.Reason)
	return retryAfter
}

func (g *Gate) failed(ctx context.Context, action string, err error) time.Duration {
	if ctx.Err() == nil {
		log.FromContext(ctx).Info("cannot "+action+" the OperatorCondition; it is tried again", "operatorCondition", g.Key.Name,
			"after", retryAfter, "reason", err.Error())
	}
	return retryAfter
}

// write sets the condition and keeps all others.
func (g *Gate) write(ctx context.Context, wanted metav1.Condition) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object := &operatorsv2.OperatorCondition{}
		if err := g.Client.Get(ctx, g.Key, object); err != nil {
			return err
		}
		before := object.DeepCopy()
		wanted.LastTransitionTime = metav1.NewTime(g.Clock.Now())
		meta.SetStatusCondition(&object.Spec.Conditions, wanted)
		// A merge patch replaces the list of conditions as a whole.
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := g.Client.Patch(ctx, object, patch); err != nil {
			return err
		}
		g.known = meta.FindStatusCondition(object.Spec.Conditions, operatorsv2.Upgradeable)
		return nil
	})
}

// leave ends a hold before the process stops: the operator may be stopped
// permanently, and its successor may need an upgrade.
func (g *Gate) leave(ctx context.Context) {
	if g.known == nil || g.known.Status != metav1.ConditionFalse {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := g.write(ctx, stopped()); err != nil {
		g.failed(ctx, "write", err)
	}
}

func same(a, b metav1.Condition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}
