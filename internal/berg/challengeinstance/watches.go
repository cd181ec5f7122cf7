package challengeinstance

import (
	"cmp"
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/clockskew"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// SetupWithManager opens the watches. Each wakes the instances of one owner; the
// only timers are the expiry and the start deadline, and a jump of the clock wakes
// those who have set them.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.backoff = outcome.NewBackoff()
	r.yields = make(chan struct{}, max(1, r.Workers/8))
	r.copies = lru.New(rememberedCopies)
	r.openQueue(mgr)
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &bergv1.ChallengeInstance{}, indexOwner, func(o client.Object) []string {
		return []string{o.(*bergv1.ChallengeInstance).Spec.OwnerID}
	}); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &bergv1.ChallengeInstance{}, indexChallenge, func(o client.Object) []string {
		return []string{r.challengeKey(o.(*bergv1.ChallengeInstance)).String()}
	}); err != nil {
		return err
	}
	var reader client.Reader = mgr.GetCache()
	perChallenge.reader.Store(&reader)
	perPhase.Watch(reader, r.Clock, mgr.Elected())
	overdue.Watch(observeOverdue(reader, r.Clock), mgr.Elected())

	owner := handler.EnqueueRequestsFromMapFunc(r.ofNamespace(r.awake(isLive)))
	changed := builder.WithPredicates(changes)
	apis, err := optional.New(mgr, r.Presence, r.Direct, optionalKinds(r.Config.Challenge.NetworkPolicy))
	if err != nil {
		return err
	}
	controllers := ctrl.NewControllerManagedBy(mgr).
		Named("challengeinstance").
		For(&bergv1.ChallengeInstance{}, builder.WithPredicates(predicate.Or(changes, finalizer.TakenOff(bergv1.Finalizer)), goneOr(isLive))).
		Watches(&bergv1.ChallengeInstance{}, handler.EnqueueRequestsFromMapFunc(r.next), builder.WithPredicates(placeChanged)).
		Watches(&bergv1.Challenge{}, handler.EnqueueRequestsFromMapFunc(r.instancesOfChallenge), builder.WithPredicates(challengeChanged)).
		Watches(&bergv1.ChallengeInstance{}, r.placesInQueue()).
		Watches(&bergv1.Challenge{}, r.roomOfChallenges(), builder.WithPredicates(challengeChanged)).
		Watches(&corev1.Namespace{}, owner).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.firstOfOwner)).
		Watches(&corev1.Pod{}, firstReady{owner, r.ofNamespace(r.awake(isNew))}, builder.WithPredicates(predicate.Or(podChanged, r.sandboxRepaired(ctx)))).
		Watches(&eventsv1.Event{}, owner, builder.WithPredicates(failureChanged)).
		Watches(&appsv1.Deployment{}, owner, builder.WithPredicates(predicate.Or(changes, refusalChanged))).
		Watches(&policyv1.PodDisruptionBudget{}, owner, changed).
		// Services and ConfigMaps have no generation: every change counts.
		Watches(&corev1.Service{}, owner).
		Watches(&corev1.ConfigMap{}, owner).
		WatchesRawSource(apis.Enqueues(listInstances)).
		WatchesRawSource(r.calls.source()).
		WatchesRawSource(clockskew.Source(r.Clock, handler.EnqueueRequestsFromMapFunc(r.withDeadline))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.Workers,
			ReconciliationTimeout:   reconcile.Timeout,
		})
	kept := []client.Object{
		&bergv1.Challenge{}, &corev1.Namespace{}, &corev1.Pod{}, &eventsv1.Event{}, &appsv1.Deployment{},
		&policyv1.PodDisruptionBudget{}, &corev1.Service{}, &corev1.ConfigMap{}, optional.Definition(),
	}
	if r.Config.Challenge.NetworkPolicy.Kubernetes() {
		controllers = controllers.Watches(&networkingv1.NetworkPolicy{}, owner, changed)
		kept = append(kept, &networkingv1.NetworkPolicy{})
	}
	r.former.kinds = formerKinds(r.Config.Challenge.NetworkPolicy)

	for _, kind := range apis.Served() {
		controllers = controllers.Watches(kind, owner, changed)
		kept = append(kept, kind)
	}
	if err := reconcile.Open(ctx, mgr.GetCache(), kept...); err != nil {
		return err
	}
	instances, err := controllers.Build(reconcile.New(r.Clock, r.backoff, reconcileMetrics, r.reconcile))
	if err != nil {
		return err
	}
	if err := r.expiries().SetupWithManager(mgr); err != nil {
		return err
	}
	if err := (&deletion{Reconciler: r}).setup(mgr); err != nil {
		return err
	}
	if err := (&orphans{client: r.Client, live: r.Live, clock: r.Clock, grace: r.Config.Challenge.OrphanGracePeriod}).setup(mgr); err != nil {
		return err
	}
	return apis.Setup("optional-apis", func(kind client.Object) error {
		return instances.Watch(source.Kind(mgr.GetCache(), kind, owner, changes))
	})
}

// ofNamespace maps a namespace, or an object in one, to the instances of the owner after
// whom it is named: to those that are live, to those of them that have never run, or to
// those that are being deleted.
func (r *Reconciler) ofNamespace(which func(client.Object) bool) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
		ownerID, ours := strings.CutPrefix(cmp.Or(o.GetNamespace(), o.GetName()), manifests.NamespacePrefix)
		if !ours {
			return nil
		}
		return r.requests(ctx, indexOwner, ownerID, which)
	}
}

// firstReady is how pods wake instances. That of an instance that has never run goes before
// all that waits: one write is all that is between a player and an instance that is ready,
// and a start takes ten. By turns, of 500 at once none would be Running before all are
// begun. An instance is Running for the first time but once, and has until its start
// deadline to become so: nothing in a pod can hold up others for long.
type firstReady struct {
	handler.EventHandler
	ofNew handler.MapFunc
}

// firstReadyPriority is above that of everything else, which is zero.
const firstReadyPriority = 1

func (h firstReady) Update(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	if before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod); !status.PodReady(before) && status.PodReady(after) {
		if queue, ok := q.(priorityqueue.PriorityQueue[ctrl.Request]); ok {
			queue.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(firstReadyPriority)}, h.ofNew(ctx, after)...)
		}
	}
	h.EventHandler.Update(ctx, e, q)
}

func isNew(o client.Object) bool {
	return isLive(o) && o.(*bergv1.ChallengeInstance).Status.ReadyAt == nil
}

func isLive(o client.Object) bool   { return o.GetDeletionTimestamp() == nil }
func isEnding(o client.Object) bool { return !isLive(o) }

func (r *Reconciler) instancesOfChallenge(ctx context.Context, o client.Object) []ctrl.Request {
	return r.requests(ctx, indexChallenge, client.ObjectKeyFromObject(o).String(), isLive)
}

// awake leaves out the instances that only wait for another of their owner: next and
// firstOfOwner wake them.
func (r *Reconciler) awake(which func(client.Object) bool) func(client.Object) bool {
	return func(o client.Object) bool { return which(o) && !r.turns.isWaiting(o) }
}

// next maps an instance to the one of its owner that waits right behind it: what that one
// says, and whether it is the first, depends on this one.
func (r *Reconciler) next(ctx context.Context, o client.Object) []ctrl.Request {
	instance := o.(*bergv1.ChallengeInstance)
	siblings, err := r.siblings(ctx, instance)
	if err != nil {
		return nil // only a cache that is shutting down fails
	}
	return requestsFor(status.Behind(instance, siblings, r.contends(ctx).holds))
}

// firstOfOwner maps a namespace to the first of its owner's instances, if some wait: it
// can be built when the namespace is gone.
func (r *Reconciler) firstOfOwner(ctx context.Context, o client.Object) []ctrl.Request {
	ownerID, ours := strings.CutPrefix(o.GetName(), manifests.NamespacePrefix)
	if !ours {
		return nil
	}
	all, err := r.siblings(ctx, &bergv1.ChallengeInstance{Spec: bergv1.ChallengeInstanceSpec{OwnerID: ownerID}})
	if err != nil || !slices.ContainsFunc(all, func(i *bergv1.ChallengeInstance) bool { return r.turns.isWaiting(i) }) {
		return nil
	}
	return requestsFor(status.First(status.InOrder(all, status.MayContend), r.contends(ctx).holds))
}

func requestsFor(i *bergv1.ChallengeInstance) []ctrl.Request {
	if i == nil {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(i)}}
}

func (r *Reconciler) requests(ctx context.Context, index, value string, which func(client.Object) bool) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, listInstances(), which, client.MatchingFields{index: value})
}

// withDeadline maps whatever happened to the instances that wait for the start deadline.
func (r *Reconciler) withDeadline(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, listInstances(), func(o client.Object) bool {
		return isLive(o) && status.UntilStartDeadline(o.(*bergv1.ChallengeInstance), r.Config.Challenge, r.Clock.Now()) > 0
	})
}

func listInstances() client.ObjectList { return &bergv1.ChallengeInstanceList{} }

// changes passes what somebody has written, and no status.
var changes = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, reconcile.Replaced)

// goneOr passes the events of objects that are gone, so that what is remembered of them
// can be forgotten, and of those that are live or being deleted.
func goneOr(which func(client.Object) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return which(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return which(e.ObjectNew) },
	}
}

// placeChanged passes the events of an instance after which another one of the same owner
// may be the first, or come right after another one than before: its creation and its
// deletion, and every change of what it asks for or of how far it has come.
var placeChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		return !e.IsInInitialList // then all are looked at
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*bergv1.ChallengeInstance), e.ObjectNew.(*bergv1.ChallengeInstance)
		return reconcile.Replaced.Update(e) || isLive(before) != isLive(after) ||
			before.Generation != after.Generation ||
			status.HeldByFreeze(before) != status.HeldByFreeze(after) || before.Status.Phase != after.Status.Phase || before.Status.InstanceID != after.Status.InstanceID
	},
}

// challengeChanged passes what instances are built from. One that was deleted and
// created again begins with the first generation again.
var challengeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || status.Frozen(e.ObjectOld) != status.Frozen(e.ObjectNew) || reconcile.Replaced.Update(e)
	},
}

// podChanged passes what the status of an instance is made of. That a pod was scheduled, or
// that its image is being pulled, changes nothing of it.
var podChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return status.ViewOf(e.ObjectOld.(*corev1.Pod)) != status.ViewOf(e.ObjectNew.(*corev1.Pod))
	},
}

// failureTold passes what an event says, and not how often.
var failureChanged = predicate.Funcs{
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.(*eventsv1.Event).Note != e.ObjectNew.(*eventsv1.Event).Note
	},
}

// sandboxRepaired passes a pod whose sandbox was refused, and exists now. Those of
// others would wake each instance once more while it starts.
func (r *Reconciler) sandboxRepaired(ctx context.Context) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if status.SandboxMade(e.ObjectOld.(*corev1.Pod)) || !status.SandboxMade(e.ObjectNew.(*corev1.Pod)) {
				return false
			}
			failures, err := r.observeSandboxes(ctx, e.ObjectNew.GetNamespace())
			return err == nil && failures[e.ObjectNew.GetUID()] != ""
		},
	}
}

// refusalChanged passes what the status of an instance says of a Deployment, and nothing
// else of its status.
var refusalChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return refusalText(e.ObjectOld) != refusalText(e.ObjectNew)
	},
}

func refusalText(o client.Object) string {
	if c := status.RefusalOf(o.(*appsv1.Deployment)); c != nil {
		return c.Message
	}
	return ""
}
