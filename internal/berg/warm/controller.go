package warm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/access"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// These rights are in a role of their own, config/berg/warm. Prepared instances are in the operator's own namespace, to which no
// platform has access.
//
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances,verbs=create,namespace=berg-operator-system
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=create
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=berg-operator-berg-warm-pods,verbs=bind
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=berg-operator-berg-warm-pods,verbs=list;watch

// Pods is the right to change the metadata of the pods of an instance, which makes the kubelet look for the flag.
var Pods = access.Right{
	Role: "berg-operator-berg-warm-pods", Binding: "berg-operator-warm", Component: bergv1.ComponentWarm,
	Attributes: authorizationv1.ResourceAttributes{Resource: "pods", Verb: "patch"},
	Folder:     "berg/warm", Setting: "CHALLENGE_WARM_MAX_INSTANCES",
}

const (
	actionPrepare = "Prepare"
	namePrefix    = "warm-"

	// maxBuilding is the number of prepared instances whose objects are written at a time. More would keep the API server from the
	// starts of players.
	maxBuilding = 1
	// maxHold is how long the start of a player keeps others from being prepared.
	maxHold = 5 * time.Second
)

var reconcileMetrics = reconcile.NewMetrics("berg_warm", "Attempts to keep prepared instances that failed and are repeated.")

func init() { metrics.Registry.MustRegister(reconcileMetrics) }

// Reconciler keeps prepared instances.
type Reconciler struct {
	reconcile.Access
	Config config.Challenge
	// Namespace is the operator's own.
	Namespace string

	backoff *outcome.Backoff
	// playerCame is when a player's start was last seen, and prepared when an instance was last made. Without them, as after a
	// restart, nothing waits.
	playerCame, prepared time.Time
}

// everything is the one request: all pools share a limit.
var everything = ctrl.Request{NamespacedName: types.NamespacedName{Name: "warm"}}

// The indexes of the cache keep a round short among ten thousand players.
const (
	// indexAsking has the registrations of platforms that ask for prepared instances: nearly all ConfigMaps have flags.
	indexAsking = "warm.asking"
	// indexPlayers has the instances of players that have started, by Challenge.
	indexPlayers = "warm.players"
	// indexStarved has the instances of players whose pods find no node, and indexBuilding those that are being built.
	indexStarved  = "warm.starved"
	indexBuilding = "warm.building"
	isIndexed     = "true"
)

// SetupWithManager opens the watches. Without a limit nothing is prepared, and players are not looked at.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.backoff = outcome.NewBackoff()
	if err := r.index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request { return []ctrl.Request{everything} })
	return ctrl.NewControllerManagedBy(mgr).
		Named("challengeinstance-warm").
		Watches(&corev1.ConfigMap{}, enqueue, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return asks(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return (asks(e.ObjectOld) || asks(e.ObjectNew)) && !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
			},
			DeleteFunc: func(e event.DeleteEvent) bool { return asks(e.Object) },
		})).
		Watches(&bergv1.Challenge{}, enqueue, builder.WithPredicates(predicate.Funcs{UpdateFunc: challengeChanged})).
		Watches(&bergv1.ChallengeInstance{}, enqueue, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return r.isPrepared(e.Object) },
			UpdateFunc: r.instanceChanged,
			DeleteFunc: func(e event.DeleteEvent) bool { return r.Config.WarmMaxInstances > 0 || r.isPrepared(e.Object) },
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: reconcile.Timeout}).
		Complete(reconcile.New(r.Clock, r.backoff, reconcileMetrics, r.reconcile))
}

// index counts players only where instances are prepared at all: each index costs memory.
func (r *Reconciler) index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.ConfigMap{}, indexAsking, func(o client.Object) []string {
		if !asks(o) {
			return nil
		}
		return []string{isIndexed}
	}); err != nil || r.Config.WarmMaxInstances == 0 {
		return err
	}
	player := func(o client.Object, counts func(*bergv1.ChallengeInstance) bool, value string) []string {
		if i := o.(*bergv1.ChallengeInstance); counts(i) && !r.isPrepared(i) {
			return []string{value}
		}
		return nil
	}
	return errors.Join(
		indexer.IndexField(ctx, &bergv1.ChallengeInstance{}, indexPlayers, func(o client.Object) []string {
			return player(o, isStarted, r.challengeKey(o.(*bergv1.ChallengeInstance)).String())
		}),
		indexer.IndexField(ctx, &bergv1.ChallengeInstance{}, indexStarved, func(o client.Object) []string {
			return player(o, isStarved, isIndexed)
		}),
		indexer.IndexField(ctx, &bergv1.ChallengeInstance{}, indexBuilding, func(o client.Object) []string {
			return player(o, isBuilding, isIndexed)
		}),
	)
}

func (r *Reconciler) challengeKey(i *bergv1.ChallengeInstance) types.NamespacedName {
	return status.ChallengeKey(i, r.Config)
}

// asks reports whether an object is a registration that asks for prepared instances.
func asks(o client.Object) bool {
	return o.GetLabels()[bergv1.LabelWarm] != "" && o.GetLabels()[bergv1.LabelPrepullChallenge] != ""
}

func challengeChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*bergv1.Challenge), e.ObjectNew.(*bergv1.Challenge)
	return before.UID != after.UID || before.Generation != after.Generation || status.Frozen(before) != status.Frozen(after) ||
		checked(before) != checked(after) || accepted(before) != accepted(after)
}

// instanceChanged passes changes of prepared instances, and of players' instances only their start and whether their pods find a
// node.
func (r *Reconciler) instanceChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*bergv1.ChallengeInstance), e.ObjectNew.(*bergv1.ChallengeInstance)
	if !r.isPrepared(after) {
		return r.Config.WarmMaxInstances > 0 && (isStarted(before) != isStarted(after) || isStarved(before) != isStarved(after) || isBuilding(before) != isBuilding(after))
	}
	return observe(before) != observe(after) || before.Status.Phase != after.Status.Phase
}

func (r *Reconciler) isPrepared(o client.Object) bool {
	return o.GetNamespace() == r.Namespace && o.GetLabels()[bergv1.LabelPrepared] != ""
}

func isStarted(i *bergv1.ChallengeInstance) bool {
	return i.DeletionTimestamp == nil && i.Status.InstanceID != ""
}

// isBuilding reports whether the operator writes the objects of an instance, or a prepared one becomes a player's.
func isBuilding(i *bergv1.ChallengeInstance) bool {
	return i.DeletionTimestamp == nil && i.Status.ReadyAt == nil &&
		(i.Status.Phase == bergv1.PhaseCreating || i.Status.PreparedFrom != "" && i.Status.Phase == bergv1.PhaseStarting)
}

// isStarved reports whether the pods of an instance find no node.
func isStarved(i *bergv1.ChallengeInstance) bool {
	return i.DeletionTimestamp == nil && i.Status.Cause == bergv1.CauseNoCapacity
}

func accepted(c *bergv1.Challenge) bool {
	return checked(c) && meta.IsStatusConditionTrue(c.Status.Conditions, bergv1.ChallengeConditionAccepted)
}

// checked reports whether the condition Accepted is about the Challenge as it is.
func checked(c *bergv1.Challenge) bool {
	condition := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionAccepted)
	return condition != nil && condition.ObservedGeneration == c.Generation
}

// observe returns a prepared instance as a decision needs it.
func observe(i *bergv1.ChallengeInstance) Prepared {
	return Prepared{
		UID: i.UID, Age: -i.CreationTimestamp.Unix(), Claimable: status.Claimable(i),
		Stuck:    i.Status.Cause != "" && i.Status.Cause != bergv1.CauseNotReadyYet,
		Outdated: meta.IsStatusConditionFalse(i.Status.Conditions, bergv1.ConditionUpToDate),
		Bound:    i.DeletionTimestamp != nil || i.Status.ClaimedBy != nil,
	}
}

// observed is all that a round decides from.
type observed struct {
	pools      []Pool
	challenges []*bergv1.Challenge // of the pools; nil: there is none of that name
	prepared   map[types.UID]*bergv1.ChallengeInstance
	starved    int
	// hold is how long the starts of players keep others from being prepared, if no event ends it.
	hold  time.Duration
	asked asked
}

// reconcile is one round.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (time.Duration, error) {
	r.backoff.ResetIfReplaced(req, "")
	o, err := r.observeAll(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	now := r.Clock.Now()
	creatable, next := o.countCreatable(), o.hold
	if o.hold > 0 {
		r.playerCame = now
	}
	if wait := untilNext(now, r.playerCame, r.prepared); wait > 0 && creatable > 0 {
		creatable, next = 0, wait
	}
	limits := Limits{Instances: r.Config.WarmMaxInstances, Starting: r.Config.WarmMaxStarting, Create: creatable, Starved: o.starved}
	for n, change := range Decide(o.pools, limits) {
		for _, uid := range change.Delete {
			errs = append(errs, r.end(ctx, o.prepared[uid]))
		}
		// After the first failure the rest of this Challenge is left to the backoff: the API server refuses the others for the same
		// reason.
		for range change.Create {
			if err := r.create(ctx, o.challenges[n]); err != nil {
				errs = append(errs, fmt.Errorf("prepare an instance of Challenge %s: %w", o.pools[n].Challenge, err))
				break
			}
			r.prepared = now
		}
		if o.challenges[n] != nil {
			errs = append(errs, r.writeStatus(ctx, o, n, change))
		}
	}
	return next, errors.Join(errs...)
}

// countCreatable returns how many instances may be created now: none while a player's is being built, and few at a time.
func (o observed) countCreatable() int {
	if o.hold > 0 {
		return 0
	}
	// An instance counts as being built until its pods exist (Starting). From there on nodes work, and not the API server.
	count := maxBuilding
	for _, i := range o.prepared {
		if i.Status.ReadyAt == nil && i.Status.Phase != bergv1.PhaseStarting && !observe(i).Stuck {
			count--
		}
	}
	return max(0, count)
}

// observeAll reads all Challenges and prepared instances, and the players that bound or displace them. The first two lists wait for
// own writes.
func (r *Reconciler) observeAll(ctx context.Context) (o observed, err error) {
	var challenges bergv1.ChallengeList
	var prepared bergv1.ChallengeInstanceList
	var registrations corev1.ConfigMapList
	if err := r.Client.List(ctx, &challenges, client.UnsafeDisableDeepCopy); err != nil {
		return o, err
	}
	if err := r.Client.List(ctx, &registrations, client.MatchingFields{indexAsking: isIndexed}, client.UnsafeDisableDeepCopy); err != nil {
		return o, err
	}
	o.asked = readAsked(registrations.Items)
	if err := r.Client.List(ctx, &prepared, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return o, err
	}
	o.prepared = map[types.UID]*bergv1.ChallengeInstance{}
	index := map[types.NamespacedName]int{}
	add := func(key types.NamespacedName, c *bergv1.Challenge) *Pool {
		n, known := index[key]
		if !known {
			n = len(o.pools)
			index[key] = n
			o.pools, o.challenges = append(o.pools, Pool{Challenge: key}), append(o.challenges, c)
		}
		return &o.pools[n]
	}
	for n := range challenges.Items {
		c := &challenges.Items[n]
		w := o.asked.find(c)
		if w == nil && meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionWarm) == nil {
			continue
		}
		p := add(client.ObjectKeyFromObject(c), c)
		// After an edit nothing changes until the Challenge was checked. An instance that is deleted here would be built again if
		// the edit turns out to be invalid.
		p.MaxInstances, p.Frozen = int(c.Spec.MaxInstances), status.Frozen(c) || !checked(c)
		if w != nil && (accepted(c) || !checked(c)) && len(c.Spec.Containers) > 0 {
			p.Min, p.Max = int(w.Min), int(w.Max)
		}
	}
	for n := range prepared.Items {
		i := &prepared.Items[n]
		if !r.isPrepared(i) {
			continue
		}
		key := r.challengeKey(i)
		p := add(key, nil)
		state := observe(i)
		if c := o.challenges[index[key]]; c != nil && string(c.UID) != i.Labels[bergv1.LabelPrepared] {
			state.Outdated = true
		}
		p.Prepared = append(p.Prepared, state)
		o.prepared[i.UID] = i
	}
	return o, r.observePlayers(ctx, &o)
}

// observePlayers counts the players of the pools that they bound, and those whose pods find no node.
func (r *Reconciler) observePlayers(ctx context.Context, o *observed) error {
	if len(o.pools) == 0 || r.Config.WarmMaxInstances == 0 {
		return nil
	}
	players := func(index, value string) ([]bergv1.ChallengeInstance, error) {
		var found bergv1.ChallengeInstanceList
		err := r.Client.List(ctx, &found, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
		return found.Items, err
	}
	for n := range o.pools {
		p := &o.pools[n]
		if p.Max == 0 && p.MaxInstances == 0 {
			continue
		}
		started, err := players(indexPlayers, p.Challenge.String())
		if err != nil {
			return err
		}
		counted := sets.New[types.UID]()
		for i := range started {
			counted.Insert(started[i].UID)
		}
		// It has no ID yet, so the index of players does not show it.
		for _, i := range p.Prepared { // the instance that has claimed one is about to start
			if claim := o.prepared[i.UID].Status.ClaimedBy; claim != nil {
				counted.Insert(claim.UID)
			}
		}
		p.Players = len(counted)
	}
	starved, err := players(indexStarved, isIndexed)
	if err != nil {
		return err
	}
	o.starved = len(starved)
	building, err := players(indexBuilding, isIndexed)
	for i := range building {
		if started := building[i].Status.StartedAt; started != nil {
			// The event of the finished build usually comes first. The time bounds the wait if a build hangs.
			o.hold = max(o.hold, maxHold-r.Clock.Now().Sub(started.Time))
		}
	}
	return err
}

// create makes an instance without a player. Its owner ID is a random UUID, and names its namespace. If the answer is lost, the
// instance exists under a name that no process knows. The next round counts it as any other. A random owner ID collides with no
// player's.
func (r *Reconciler) create(ctx context.Context, c *bergv1.Challenge) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	return r.Client.Create(ctx, &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: namePrefix + id.String(),
			Labels: map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelPrepared: string(c.UID)},
		},
		Spec: bergv1.ChallengeInstanceSpec{ChallengeRef: bergv1.ChallengeReference{Namespace: c.Namespace, Name: c.Name}, OwnerID: id.String()},
	})
}

// end deletes a prepared instance in the version in which no instance has claimed it.
func (r *Reconciler) end(ctx context.Context, i *bergv1.ChallengeInstance) error {
	err := apply.DeleteUnchanged(ctx, r.Client, i.DeepCopy())
	if apierrors.IsConflict(err) {
		return outcome.ErrConflict // an event follows
	}
	return err
}

// writeStatus writes the condition Warm of a Challenge. A Challenge without spec.warm has none.
func (r *Reconciler) writeStatus(ctx context.Context, o observed, n int, change Change) error {
	before := o.challenges[n]
	c := before.DeepCopy()
	if w := o.asked.find(c); w == nil || w.Min == 0 {
		meta.RemoveStatusCondition(&c.Status.Conditions, bergv1.ChallengeConditionWarm)
	} else {
		condition := r.condition(o, n, change)
		condition.Type = bergv1.ChallengeConditionWarm
		conditions.Upsert(&c.Status.Conditions, c.Generation, r.Clock.Now(), condition)
	}
	return reconcile.Status[*bergv1.Challenge]{
		Client:  r.Client,
		Pointer: func(c *bergv1.Challenge) any { return &c.Status },
		Rejected: func(c *bergv1.Challenge, err error) {
			reconcile.Warning(r.Events, c, bergv1.ReasonRefused, actionPrepare, "The API server refuses the status of this Challenge: "+err.Error())
		},
	}.Patch(ctx, before, c)
}

// condition says whether a player gets a prepared instance. It has no count, which would change with every start. It explains the
// first cause in the order in which a person can do something about it, and is written with the status of the Challenge: a text
// that changes for each start would be a write for each start.
func (r *Reconciler) condition(o observed, n int, change Change) metav1.Condition {
	p := o.pools[n]
	unready := func(reason, message string) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	switch {
	case r.Config.WarmMaxInstances == 0:
		return unready(bergv1.WarmDisabled, "The operator's CHALLENGE_WARM_MAX_INSTANCES is 0: no instance is prepared, and spec.warm has no effect")
	case slices.ContainsFunc(p.Prepared, func(i Prepared) bool { return i.Claimable }):
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: bergv1.WarmReady, Message: "The next instance takes over a prepared one"}
	case p.Min == 0:
		return unready(bergv1.ReasonInvalidChallenge, "No instance is prepared until the Challenge is accepted and has containers")
	case status.Frozen(o.challenges[n]):
		return unready(bergv1.ReasonFrozen, "The Challenge is frozen. No instance is prepared until the annotation "+bergv1.AnnotationFrozen+" is removed")
	case o.starved > 0:
		return unready(bergv1.WarmNoCapacity, "Pods of players find no node: they get the capacity of prepared instances")
	case change.Wanted == 0:
		return unready(bergv1.WarmLimited, "A limit is reached: spec.warm.max or spec.maxInstances of the Challenge, or the operator's CHALLENGE_WARM_MAX_INSTANCES")
	}
	message := "Instances are being prepared"
	for _, i := range p.Prepared {
		if ready := meta.FindStatusCondition(o.prepared[i.UID].Status.Conditions, reconcile.ConditionReady); !i.Bound && ready != nil && ready.Status == metav1.ConditionFalse {
			message = strings.TrimSuffix("Instances are being prepared. The first one is not ready: "+ready.Message, ".")
			break
		}
	}
	return unready(bergv1.WarmPreparing, message)
}
