package challengeinstance

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/clockskew"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// SetupWithManager opens the watches, and adds the controllers. Each watch enqueues the instances of one owner; the only
// timers are the expiry and the start deadline, and a jump of the clock enqueues the instances that have one.
//
// The order matters. The cache must have its indexes before a watch opens. The optional APIs must be known before the
// watches are chosen: the watch of a missing kind would never be ready. All watches open before the lease is held, so that
// a new leader starts with a full cache.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.kind = r.newKind()
	r.copies, r.granted = lru.New(rememberedCopies), lru.New(rememberedCopies)
	r.former.kinds = formerKinds(r.Config.Challenge.NetworkPolicy)
	if err := r.index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r.serveGauges(mgr)
	var err error
	if r.gateways, err = newGateways(mgr, r.Config.Gateway, r.Namespace); err != nil {
		return err
	}
	apis, err := optional.New(mgr, r.Presence, r.Direct, optionalKinds(r.Config.Challenge.NetworkPolicy))
	if err != nil {
		return err
	}
	owner := handler.EnqueueRequestsFromMapFunc(r.ofNamespace(isBuilt))
	controllers, watched := r.watches(ctx, mgr, apis, owner)
	if err := reconcile.Open(ctx, mgr.GetCache(), watched...); err != nil {
		return err
	}
	instances, err := controllers.Build(r.kind.Reconciler())
	if err != nil {
		return err
	}
	if err := r.expiries().SetupWithManager(mgr); err != nil {
		return err
	}
	if err := (&admitter{Reconciler: r}).setup(mgr); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.sweepRevisions)); err != nil {
		return err
	}
	if err := (&orphans{client: r.Client, live: r.Live, clock: r.Clock, grace: r.Config.Challenge.OrphanGracePeriod}).setup(mgr); err != nil {
		return err
	}
	return apis.Setup("optional-apis", func(kind client.Object) error {
		return instances.Watch(r.watchOptional(mgr, kind, owner))
	})
}

// index lets the cache find instances by their owner and by their Challenge, and the instances that were not started.
func (r *Reconciler) index(ctx context.Context, indexer client.FieldIndexer) error {
	for name, extract := range map[string]func(*bergv1.ChallengeInstance) string{
		indexOwner:     func(i *bergv1.ChallengeInstance) string { return i.Spec.OwnerID },
		indexNamespace: manifests.NamespaceFor,
		indexChallenge: func(i *bergv1.ChallengeInstance) string { return r.challengeKey(i).String() },
		indexClaim: func(i *bergv1.ChallengeInstance) string {
			return string(ptr.Deref(i.Status.ClaimedBy, bergv1.InstanceReference{}).UID)
		},
		indexPending: func(i *bergv1.ChallengeInstance) string {
			if i.Status.InstanceID == "" {
				return isPending
			}
			return ""
		},
		indexPrepared: func(i *bergv1.ChallengeInstance) string {
			if r.isPrepared(i) {
				return isPending
			}
			return ""
		},
	} {
		if err := indexer.IndexField(ctx, &bergv1.ChallengeInstance{}, name, func(o client.Object) []string {
			if value := extract(o.(*bergv1.ChallengeInstance)); value != "" {
				return []string{value}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// serveGauges lets the gauges of instances count in the manager's cache.
func (r *Reconciler) serveGauges(mgr ctrl.Manager) {
	var reader client.Reader = mgr.GetCache()
	players := playerReader{reader, r.isPrepared}
	queueLength.Watch(observeQueueLengths(players), mgr.Elected())
	headAge.Watch(observeHeadAge(players, r.Clock), mgr.Elected())
	freeCapacity.Watch(observeFreeCapacity(players, r.Config.Challenge.MaxInstances), mgr.Elected())
	nodePortsInUse.Watch(observeNodePorts(reader), mgr.Elected())
	perChallenge.reader.Store(&reader)
	perPhase.Watch(players, r.Clock, mgr.Elected())
	overdue.Watch(observeOverdue(reader, r.Clock), mgr.Elected())
}

// watches returns the controller of instances, and the other kinds that it watches. owner enqueues the instance of an
// object's namespace.
func (r *Reconciler) watches(ctx context.Context, mgr ctrl.Manager, apis *optional.Follower, owner handler.EventHandler) (controllers *builder.Builder, watched []client.Object) {
	changed := builder.WithPredicates(changes)
	controllers = ctrl.NewControllerManagedBy(mgr).
		Named("challengeinstance").
		Watches(&bergv1.ChallengeInstance{}, instanceEvents, builder.WithPredicates(predicate.Or(changes, justStarted, reconcile.StatusLost, finalizer.TakenOff(bergv1.Finalizer)), goneOr(isOurs))).
		Watches(&bergv1.ChallengeInstance{}, handler.EnqueueRequestsFromMapFunc(r.claimed), builder.WithPredicates(claimSettled)).
		Watches(&bergv1.Challenge{}, r.challengeEvents(), builder.WithPredicates(challengeChanged)).
		// A namespace has two handlers: a live instance repairs its namespace, and a deletion continues with another
		// priority.
		Watches(&corev1.Namespace{}, owner).
		Watches(&corev1.Namespace{}, r.terminatingNamespaces(), builder.WithPredicates(goneOr(isEnding))).
		Watches(&corev1.Pod{}, firstReady{owner, r.ofNamespace(isNew)}, builder.WithPredicates(predicate.Or(podChanged, r.sandboxRepaired(ctx)))).
		// A pod that a controller created just before the namespace was deleted must be stopped, too.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace(isEnding)), builder.WithPredicates(newObject)).
		Watches(&eventsv1.Event{}, owner, builder.WithPredicates(failureChanged)).
		Watches(&appsv1.Deployment{}, owner, builder.WithPredicates(predicate.Or(changes, refusalChanged))).
		Watches(&policyv1.PodDisruptionBudget{}, owner, changed).
		// Services and ConfigMaps have no generation: every change counts.
		Watches(&corev1.Service{}, owner).
		Watches(&corev1.ConfigMap{}, owner).
		WatchesRawSource(apis.Enqueues(listInstances)).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			// The controller starts its sources before its workers, so every reconciliation can use both functions.
			r.enqueue = queue.Add
			r.enqueueReady = func(request ctrl.Request) { enqueue(queue, firstReadyPriority, request) }
			return nil
		})).
		WatchesRawSource(r.Isolation.Source(handler.EnqueueRequestsFromMapFunc(r.allBuilt))).
		WatchesRawSource(source.Kind[client.Object](r.gateways.Cache, &discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.allBuilt), replicasChanged)).
		WatchesRawSource(clockskew.Source(r.Clock, handler.EnqueueRequestsFromMapFunc(r.withDeadline))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.Workers,
			ReconciliationTimeout:   reconcile.Timeout,
		})
	watched = []client.Object{
		&bergv1.Challenge{}, &corev1.Namespace{}, &corev1.Pod{}, &eventsv1.Event{}, &appsv1.Deployment{},
		&policyv1.PodDisruptionBudget{}, &corev1.Service{}, &corev1.ConfigMap{}, optional.Definition(),
	}
	also := func(kind client.Object, to handler.EventHandler, opts ...builder.WatchesOption) {
		controllers = controllers.Watches(kind, to, opts...)
		watched = append(watched, kind)
	}
	all := handler.EnqueueRequestsFromMapFunc(r.allBuilt)
	if r.Config.Challenge.NetworkPolicy.Kubernetes() {
		also(&networkingv1.NetworkPolicy{}, owner, changed)
	}
	if r.Config.Challenge.NetworkPolicy == config.NetworkPolicyAuto {
		also(&appsv1.DaemonSet{}, all, builder.WithPredicates(agentsChanged))
	}
	if nodes.Watched(r.Config.Challenge) {
		also(&corev1.Node{}, all, builder.WithPredicates(nodes.Changed))
	}
	also(&discoveryv1.EndpointSlice{}, served{owner, r.ofNamespace(isNew)}, builder.WithPredicates(endpointsChanged))
	for _, kind := range apis.Served() {
		controllers = controllers.WatchesRawSource(r.watchOptional(mgr, kind, owner))
		if !inGateways(kind) {
			watched = append(watched, kind)
		}
	}
	return controllers, watched
}

// The priorities in the queue. An instance whose pod is ready for the first time goes first: one write is all that is
// missing, and a start takes ten. In the order of events, of 500 started together none would be Running before all are
// built. An instance is Running for the first time only once, and has until its start deadline to become so: no program in
// a pod can hold up others for long.
const (
	firstReadyPriority = 2
	startPriority      = 1
	deletionPriority   = -1
	// maxDeletionDelay is how long deletions let starts go first. Then they have the same priority, so that a busy hour
	// leaves none undone.
	maxDeletionDelay = 5 * time.Second
)

func enqueue(q workqueue.TypedRateLimitingInterface[ctrl.Request], priority int, requests ...ctrl.Request) {
	q.(priorityqueue.PriorityQueue[ctrl.Request]).AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(priority)}, requests...)
}

// instanceEvents enqueue the instance of the event.
var instanceEvents = handler.Funcs{
	CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		enqueueInstance(q, e.Object.(*bergv1.ChallengeInstance), e.IsInInitialList)
	},
	UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		enqueueInstance(q, e.ObjectNew.(*bergv1.ChallengeInstance), false)
	},
	DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		enqueue(q, 0, newRequest(e.Object))
	},
}

// enqueueInstance enqueues instances that have been ready for long with the lowest priority: the operator finds all of them
// when it starts.
func enqueueInstance(q workqueue.TypedRateLimitingInterface[ctrl.Request], i *bergv1.ChallengeInstance, initial bool) {
	switch {
	case isEnding(i):
		enqueue(q, deletionPriority, newRequest(i))
		// The queue raises the priority of a request that still waits, and a deletion that has ended is reconciled without
		// effect. The timer holds one request. After a restart the initial list enqueues the deletion again.
		time.AfterFunc(maxDeletionDelay, func() { enqueue(q, startPriority, newRequest(i)) })
	case isNew(i):
		enqueue(q, startPriority, newRequest(i))
	case initial, i.Labels[bergv1.LabelPrepared] != "": // players do not wait for it
		enqueue(q, handler.LowPriority, newRequest(i))
	default:
		enqueue(q, 0, newRequest(i))
	}
}

// terminatingNamespaces enqueue the instance that is being deleted and owns the namespace. When the namespace is gone, two
// writes remain until the slot is free.
func (r *Reconciler) terminatingNamespaces() handler.EventHandler {
	mapNamespace := func(ctx context.Context, ns client.Object) []ctrl.Request {
		return r.ofNamespace(func(i client.Object) bool {
			return isEnding(i) && manifests.NamespaceOwner(i.(*bergv1.ChallengeInstance)).Owns(ns)
		})(ctx, ns)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			enqueue(q, deletionPriority, mapNamespace(ctx, e.Object)...)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			enqueue(q, deletionPriority, mapNamespace(ctx, e.ObjectNew)...)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			enqueue(q, startPriority, mapNamespace(ctx, e.Object)...)
		},
	}
}

// firstReady enqueues the instances of pods. A pod that runs or becomes ready for the first time has priority.
type firstReady struct {
	handler.EventHandler
	ofNew handler.MapFunc
}

func (h firstReady) Update(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	if before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod); !status.PodReady(before) && status.PodReady(after) || !status.Begins(before) && status.Begins(after) {
		enqueue(q, firstReadyPriority, h.ofNew(ctx, after)...)
	}
	h.EventHandler.Update(ctx, e, q)
}

// isOurs reports whether the Reconciler writes an instance: the admitter writes the others.
func isOurs(o client.Object) bool { return isBuilt(o) || isEnding(o) }

// challengeEvents enqueue the instances of a Challenge. The images of a deleted Challenge are forgotten here, because it
// may have no instance whose reconciliation forgets them.
func (r *Reconciler) challengeEvents() handler.EventHandler {
	return forgetting{handler.EnqueueRequestsFromMapFunc(r.challengeRequests), r.images.Forget}
}

// forgetting calls forget for objects that are gone, before it enqueues as usual.
type forgetting struct {
	handler.EventHandler
	forget func(types.NamespacedName)
}

func (h forgetting) Delete(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	h.forget(client.ObjectKeyFromObject(e.Object))
	h.EventHandler.Delete(ctx, e, q)
}

func (r *Reconciler) challengeRequests(ctx context.Context, o client.Object) []ctrl.Request {
	return r.requests(ctx, indexChallenge, client.ObjectKeyFromObject(o).String(), isBuilt)
}

// withDeadline maps any event to the instances that wait for their start deadline.
func (r *Reconciler) withDeadline(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, listInstances(), func(o client.Object) bool {
		return isLive(o) && status.UntilStartDeadline(o.(*bergv1.ChallengeInstance), r.Config.Challenge, r.Clock.Now()) > 0
	})
}

// justStarted passes the update with which an instance was started.
var justStarted = reconcile.Updates(func(before, after client.Object) bool { return !isBuilt(before) && isBuilt(after) })
