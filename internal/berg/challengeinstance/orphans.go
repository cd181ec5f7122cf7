package challengeinstance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/stop"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// orphans watches the namespaces of instances that no longer exist. An instance outlives its
// namespace unless its finalizer was removed by hand. The controller counts such namespaces,
// and deletes each after ORPHAN_GRACE_PERIOD if that is set.
type orphans struct {
	client client.Client
	// live reads from the API server: an object may exist that the cache does not show.
	live  client.Reader
	clock clock.PassiveClock
	// grace is zero if no orphan is to be deleted.
	grace   time.Duration
	backoff *outcome.Backoff
	seen    orphansSeen
}

// orphansSeen records since when this process has known each orphan. The zero value is ready for use.
type orphansSeen struct {
	mu        sync.Mutex
	since     map[types.UID]time.Time // by the UID of the namespace
	uidByName map[string]types.UID    // the UID by the name, of those in since
}

func (o *orphans) setup(mgr ctrl.Manager) error {
	o.backoff = outcome.NewBackoff()
	orphanedNamespaces.Watch(o.seen.report, mgr.Elected())
	return ctrl.NewControllerManagedBy(mgr).
		Named("challengeinstance-orphans").
		For(&corev1.Namespace{}, builder.WithPredicates(ofInstances, identityChanged)).
		Watches(&bergv1.ChallengeInstance{}, handler.EnqueueRequestsFromMapFunc(ownerNamespaceRequest), builder.WithPredicates(reconcile.Replaced)).
		WithOptions(controller.Options{ReconciliationTimeout: reconcile.Timeout}).
		Complete(reconcile.Drain(reconcileMetrics, o))
}

// ofInstances passes namespaces whose name an instance's namespace would have.
var ofInstances = predicate.NewPredicateFuncs(func(ns client.Object) bool {
	return strings.HasPrefix(ns.GetName(), manifests.NamespacePrefix)
})

// identityChanged passes changes of the labels and annotations that identify the instance, and
// the deletion.
var identityChanged = predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, reconcile.Replaced, predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return isLive(e.ObjectOld) != isLive(e.ObjectNew) },
})

func ownerNamespaceRequest(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: manifests.NamespaceFor(o.(*bergv1.ChallengeInstance))}}}
}

// Reconcile checks one namespace. It returns no errors: the backoff, not the queue, chooses the delay after a failure.
func (o *orphans) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	requeueAfter, err := o.reconcile(ctx, req.Name)
	result, _ := o.backoff.Result(ctx, req, requeueAfter, err)
	return result, nil
}

// reconcile deletes nothing itself. The grace period begins with the first observation by this process, so a restart begins it
// again.
func (o *orphans) reconcile(ctx context.Context, name string) (requeueAfter time.Duration, err error) {
	ns := &corev1.Namespace{}
	err = o.client.Get(ctx, types.NamespacedName{Name: name}, ns)
	gone := apply.Absent(err)
	if err != nil && !gone {
		return 0, err
	}
	// Only a namespace whose name, labels and annotation all name an instance can be an orphan.
	instance, provable := manifests.ReadInstanceUID(ns)
	if gone || !provable || ns.DeletionTimestamp != nil {
		o.seen.forget(name)
		return 0, nil
	}
	// The cache only starts the grace period, and the metric. A wrong answer costs nothing, since collect asks the API server.
	exists, err := o.exists(ctx, ns, instance)
	if err != nil {
		return 0, err
	}
	if exists {
		o.seen.forget(name)
		return 0, nil
	}
	now := o.clock.Now()
	since, fresh := o.seen.note(ns, now)
	if fresh {
		about := log.FromContext(ctx).WithValues("orphan", name, "instance", ns.Annotations[bergv1.AnnotationInstance], "uid", instance)
		if o.grace > 0 {
			about = about.WithValues("deletedIn", o.grace.String())
		}
		about.Info("a namespace has outlived its instance, whose finalizer was removed by hand: delete the namespace, or set ORPHAN_GRACE_PERIOD")
	}
	if o.grace == 0 {
		return 0, nil
	}
	if left := o.grace - now.Sub(since); left > 0 {
		return left, nil
	}
	return 0, o.collect(ctx, ns, instance)
}

// exists reports whether the cache shows the instance of a namespace.
func (o *orphans) exists(ctx context.Context, ns *corev1.Namespace, uid types.UID) (bool, error) {
	var all bergv1.ChallengeInstanceList
	if err := o.client.List(ctx, &all, client.MatchingFields{indexNamespace: ns.Name},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return false, err
	}
	for i := range all.Items {
		if manifests.OwnerUID(&all.Items[i]) == uid {
			return true, nil
		}
	}
	return false, nil
}

// instancesPerPage is the number of instances in one response. Each has half a MiB at most, so that a page has 50 MiB.
const instancesPerPage = 100

// errOrphanKept says that the cache is out of date. The check is repeated.
var errOrphanKept = errors.New("the instance of the namespace exists")

// collect deletes an orphan. The cache may be out of date, so everything is read from the API server again, the instances
// after the namespace: an instance that does not exist then never will, since no UID is reused. The precondition ensures
// that the deleted namespace is the checked one, in the same version.
func (o *orphans) collect(ctx context.Context, ns *corev1.Namespace, instance types.UID) error {
	live := &corev1.Namespace{}
	if err := o.live.Get(ctx, client.ObjectKeyFromObject(ns), live); err != nil {
		return err // either it is gone, or the backoff repeats the check
	}
	if uid, provable := manifests.ReadInstanceUID(live); !provable || uid != instance || live.UID != ns.UID || live.DeletionTimestamp != nil {
		return outcome.ErrConflict // an event follows
	}
	instances := &bergv1.ChallengeInstanceList{}
	for page := ""; ; {
		if err := o.live.List(ctx, instances, client.Limit(instancesPerPage), client.Continue(page)); err != nil {
			return fmt.Errorf("look for the instance of namespace %s: %w", ns.Name, err)
		}
		for i := range instances.Items {
			if manifests.OwnerUID(&instances.Items[i]) == instance {
				return fmt.Errorf("namespace %s is kept: %w", ns.Name, errOrphanKept)
			}
		}
		if page = instances.Continue; page == "" {
			break
		}
	}
	err := o.client.Delete(ctx, live, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: ptr.To(live.UID), ResourceVersion: ptr.To(live.ResourceVersion)})
	if apierrors.IsConflict(err) {
		return outcome.ErrConflict
	}
	if apply.IgnoreAbsent(err) != nil {
		return fmt.Errorf("delete namespace %s, whose instance does not exist: %w", ns.Name, err)
	}
	// Only live pods of the cache are stopped here, once. A pod that this misses ends with the namespace, as without an operator.
	if _, err := stop.Pods(ctx, o.client, live.Name, false, o.clock.Now()); err != nil {
		return err
	}
	log.FromContext(ctx).Info("deleted the namespace of an instance that no longer exists", "orphan", ns.Name, "uid", instance)
	return nil
}

// note returns since when a namespace has been known as an orphan, and whether that is new.
func (s *orphansSeen) note(ns *corev1.Namespace, now time.Time) (since time.Time, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since, ok := s.since[ns.UID]; ok {
		return since, false
	}
	if s.since == nil {
		s.since, s.uidByName = map[types.UID]time.Time{}, map[string]types.UID{}
	}
	delete(s.since, s.uidByName[ns.Name])
	s.since[ns.UID], s.uidByName[ns.Name] = now, ns.UID
	return now, true
}

func (s *orphansSeen) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, s.uidByName[name])
	delete(s.uidByName, name)
}

func (s *orphansSeen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.since)
}

// report is the value of the metric.
func (s *orphansSeen) report(context.Context) (float64, error) { return float64(s.count()), nil }
