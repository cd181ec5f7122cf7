package challengeinstance

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/keymutex"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// SetupWithManager opens the watches. Each wakes the instances of one owner; the
// only timers are the expiry and the start deadline.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.backoff = outcome.NewBackoff()
	r.owners = keymutex.NewHashed(ownerLocks)
	r.copies = lru.New(rememberedCopies)
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

	owner := handler.EnqueueRequestsFromMapFunc(r.ofNamespace(isLive))
	changed := builder.WithPredicates(changes)
	wake := make(chan event.GenericEvent)
	controllers := ctrl.NewControllerManagedBy(mgr).
		Named("challengeinstance").
		For(&bergv1.ChallengeInstance{}, builder.WithPredicates(changes, goneOr(isLive))).
		Watches(&bergv1.ChallengeInstance{}, handler.EnqueueRequestsFromMapFunc(r.siblings), builder.WithPredicates(notNew)).
		Watches(&bergv1.Challenge{}, handler.EnqueueRequestsFromMapFunc(r.instancesOfChallenge), builder.WithPredicates(challengeChanged)).
		Watches(&corev1.Namespace{}, owner).
		Watches(&corev1.Pod{}, firstReady{owner, r.ofNamespace(isNew)}, builder.WithPredicates(predicate.Or(podChanged, r.sandboxMended(ctx)))).
		Watches(&eventsv1.Event{}, owner, builder.WithPredicates(failureTold)).
		Watches(&appsv1.Deployment{}, owner, builder.WithPredicates(predicate.Or(changes, refusalChanged))).
		Watches(&policyv1.PodDisruptionBudget{}, owner, changed).
		// Services and ConfigMaps have no generation: every change counts.
		Watches(&corev1.Service{}, owner).
		Watches(&corev1.ConfigMap{}, owner).
		WatchesRawSource(source.Channel(wake, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.Config.Process.MaxConcurrentReconciles,
			ReconciliationTimeout:   longestPass,
		})
	seen := []client.Object{
		&bergv1.Challenge{}, &corev1.Namespace{}, &corev1.Pod{}, &eventsv1.Event{}, &appsv1.Deployment{},
		&policyv1.PodDisruptionBudget{}, &corev1.Service{}, &corev1.ConfigMap{}, Definition(),
	}
	if r.Config.Challenge.NetworkPolicy.Kubernetes() {
		controllers = controllers.Watches(&networkingv1.NetworkPolicy{}, owner, changed)
		seen = append(seen, &networkingv1.NetworkPolicy{})
	}
	r.former.kinds = formerKinds(r.Config.Challenge.NetworkPolicy)

	kinds := optionalKinds(r.Config.Challenge.NetworkPolicy)
	watched, announced := map[string]bool{}, map[string]types.UID{}
	presence := &presence{missing: map[schema.GroupVersionKind]bool{}}
	for definition, object := range kinds {
		gvk, err := apiutil.GVKForObject(object, mgr.GetScheme())
		if err != nil {
			return err
		}
		ok, err := served(mgr, gvk)
		if err != nil {
			return fmt.Errorf("look up %s: %w", definition, err)
		}
		if ok {
			controllers = controllers.Watches(object, owner, changed)
			seen = append(seen, object)
			watched[definition], announced[definition] = true, fromTheStart
		}
		presence.set(gvk, !ok)
	}
	r.Client = presentClient{Client: r.Client, presence: presence}
	// A manager waits for the caches that it knows of before it competes for the
	// lease. The controllers would only name theirs meanwhile.
	for _, kind := range seen {
		if _, err := mgr.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	instances, err := controllers.Build(drained{r})
	if err != nil {
		return err
	}
	if err := (&expirer{client: mgr.GetClient(), clock: r.Clock, config: r.Config}).setup(mgr); err != nil {
		return err
	}
	if err := (&deletion{Reconciler: r}).setup(mgr); err != nil {
		return err
	}
	apis := &optionalAPIs{
		kinds: kinds, mgr: mgr, presence: presence, instances: instances,
		handler: owner, predicates: []predicate.Predicate{changes}, wake: wake,
		watched: watched, announced: announced,
	}
	return apis.setup()
}

// ofNamespace maps a namespace, or an object in one, to the instances of the owner after
// whom it is named: to those that are live, to those of them that have never run, or to
// those that are being deleted.
func (r *Reconciler) ofNamespace(which func(client.Object) bool) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		ownerID, ours := strings.CutPrefix(cmp.Or(o.GetNamespace(), o.GetName()), NamespacePrefix)
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

func (h firstReady) Update(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod); !podReady(before) && podReady(after) {
		if queue, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
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

func (r *Reconciler) instancesOfChallenge(ctx context.Context, o client.Object) []reconcile.Request {
	return r.requests(ctx, indexChallenge, client.ObjectKeyFromObject(o).String(), isLive)
}

// siblings maps an instance to the other live ones of its owner.
func (r *Reconciler) siblings(ctx context.Context, o client.Object) []reconcile.Request {
	all := r.requests(ctx, indexOwner, o.(*bergv1.ChallengeInstance).Spec.OwnerID, isLive)
	others := all[:0]
	for _, request := range all {
		if request.NamespacedName != client.ObjectKeyFromObject(o) {
			others = append(others, request)
		}
	}
	return others
}

func (r *Reconciler) requests(ctx context.Context, index, value string, which func(client.Object) bool) []reconcile.Request {
	var instances bergv1.ChallengeInstanceList
	err := r.Client.List(ctx, &instances, client.MatchingFields{index: value},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil // only a cache that is shutting down fails
	}
	requests := make([]reconcile.Request, 0, len(instances.Items))
	for i := range instances.Items {
		if which(&instances.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&instances.Items[i])})
		}
	}
	return requests
}

// changes passes what somebody has written, and no status.
var changes = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// goneOr passes the events of objects that are gone, so that what is remembered of them
// can be forgotten, and of those that are live or being deleted.
func goneOr(which func(client.Object) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return which(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return which(e.ObjectNew) },
	}
}

// notNew passes the events of an instance after which another one of the same
// owner may be the first: every change of what it asks for, of its status, and its
// end. A new one never makes another the first.
var notNew = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
}

// challengeChanged passes what instances are built from. One that was deleted and
// created again begins with the first generation anew.
var challengeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
	},
}

// podChanged passes what the status of an instance is made of. That a pod was scheduled, or
// that its image is being pulled, changes nothing of it.
var podChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return viewOf(e.ObjectOld.(*corev1.Pod)) != viewOf(e.ObjectNew.(*corev1.Pod))
	},
}
