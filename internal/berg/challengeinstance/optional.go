package challengeinstance

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// optionalKinds returns the kinds of APIs that a cluster may lack, by the name
// of their definition. Instances that need none of a missing kind run without it.
func optionalKinds(policy config.NetworkPolicy) map[string]client.Object {
	kinds := map[string]client.Object{
		"httproutes.gateway.networking.k8s.io": &gatewayv1.HTTPRoute{},
		"tlsroutes.gateway.networking.k8s.io":  &gatewayv1.TLSRoute{},
	}
	if policy.Cilium() {
		kinds["ciliumnetworkpolicies.cilium.io"] = &ciliumv2.CiliumNetworkPolicy{}
	}
	return kinds
}

// Definition is the kind CustomResourceDefinition, of which the operator looks
// at the metadata alone.
func Definition() *metav1.PartialObjectMetadata {
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{
		Group: apiextensionsv1.GroupName, Version: "v1", Kind: "CustomResourceDefinition",
	})
	return definition
}

// The pauses between looks whether an API whose definition exists can be used: no event
// tells. One that is being installed is there in a moment. One whose definition has only
// another version is not before the definition changes.
const (
	servedPause        = 500 * time.Millisecond
	longestServedPause = time.Minute
)

// optionalAPIs follows the definitions of the optional kinds: it opens the watch
// of a kind when its API is installed, marks a kind missing when it is removed,
// and wakes the instances when it is there.
type optionalAPIs struct {
	kinds    map[string]client.Object
	mgr      ctrl.Manager
	presence *optional.Presence
	// direct asks the API server also for kinds that are missing.
	direct     client.Reader
	instances  controller.Controller
	handler    handler.EventHandler
	predicates []predicate.Predicate
	// wake carries instances to their controller.
	wake chan event.GenericEvent
	// watched are the definitions of the kinds whose watch was opened. It stays
	// open while an API is missing, and connects again by itself.
	watched map[string]bool
	// announced are the definitions that every instance knows of. One that is
	// removed and installed again has another UID.
	announced map[string]types.UID
	// looks are how often a version of a definition was looked at in vain, by its name.
	looks map[string]looks
}

type looks struct {
	resourceVersion string
	number          int
}

// fromTheStart stands for the UID of a definition that was there before the
// instances were.
const fromTheStart types.UID = "from the start"

func (a *optionalAPIs) setup() error {
	optional := predicate.NewPredicateFuncs(func(o client.Object) bool { return a.kinds[o.GetName()] != nil })
	return ctrl.NewControllerManagedBy(a.mgr).
		Named("optional-apis").
		For(Definition(), builder.WithPredicates(optional)).
		Complete(a)
}

// Reconcile follows the definition of one optional kind.
func (a *optionalAPIs) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := a.kinds[req.Name]
	gvk, err := apiutil.GVKForObject(object, a.mgr.GetScheme())
	if err != nil {
		return ctrl.Result{}, err
	}
	definition := Definition()
	err = a.mgr.GetClient().Get(ctx, req.NamespacedName, definition)
	if apierrors.IsNotFound(err) || err == nil && definition.DeletionTimestamp != nil {
		a.presence.Set(gvk, true)
		delete(a.announced, req.Name)
		delete(a.looks, req.Name)
		log.FromContext(ctx).Info("an API was removed: instances that need it wait for it", "definition", req.Name)
		return ctrl.Result{}, nil
	}
	if err != nil || a.announced[req.Name] == definition.UID {
		return ctrl.Result{}, err
	}
	if a.announced[req.Name] == fromTheStart {
		// To wake everybody now would put new events behind the backlog of the
		// start.
		a.announced[req.Name] = definition.UID
		return ctrl.Result{}, nil
	}

	if ok, err := a.serves(ctx, gvk); err != nil || !ok {
		return ctrl.Result{RequeueAfter: a.pause(definition)}, err
	}
	opened := !a.watched[req.Name]
	if opened {
		if err := a.instances.Watch(source.Kind(a.mgr.GetCache(), object, a.handler, a.predicates...)); err != nil {
			return ctrl.Result{}, fmt.Errorf("watch %s: %w", req.Name, err)
		}
		a.watched[req.Name] = true
	}
	if !opened && !a.follows(ctx, object, definition) {
		return ctrl.Result{RequeueAfter: servedPause}, nil // no request
	}
	delete(a.looks, req.Name)
	a.presence.Set(gvk, false)
	if err := a.wakeAll(ctx); err != nil {
		return ctrl.Result{}, err
	}
	a.announced[req.Name] = definition.UID
	log.FromContext(ctx).Info("an API is there: instances that waited for it go on", "definition", req.Name)
	return ctrl.Result{}, nil
}

// pause returns when to look again after a look in vain. It grows until the definition
// changes.
func (a *optionalAPIs) pause(definition client.Object) time.Duration {
	l := a.looks[definition.GetName()]
	if l.resourceVersion != definition.GetResourceVersion() {
		l = looks{resourceVersion: definition.GetResourceVersion()}
	}
	pause := longestServedPause
	if l.number < 7 { // doubled so often it is longer than a minute
		pause = min(pause, servedPause<<l.number)
	}
	l.number++
	a.looks[definition.GetName()] = l
	return pause
}

// serves asks the API server itself: what was looked up before may have been
// removed since.
func (a *optionalAPIs) serves(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err := a.direct.List(ctx, list, client.Limit(1))
	if meta.IsNoMatchError(err) || outcome.KindUnknown(err) {
		return false, nil
	}
	return err == nil, err
}

// follows reports whether the watch of a kind has seen the API server since the
// definition was made. One that was cut off when the API was removed takes up to
// a minute to connect again, and until then it shows nothing that we write.
func (a *optionalAPIs) follows(ctx context.Context, object client.Object, definition *metav1.PartialObjectMetadata) bool {
	informer, err := a.mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return false
	}
	seen, ok := informer.(interface{ LastSyncResourceVersion() string })
	if !ok {
		return informer.HasSynced()
	}
	order, err := resourceversion.CompareResourceVersion(seen.LastSyncResourceVersion(), definition.ResourceVersion)
	return err == nil && order >= 0
}

// wakeAll wakes every instance: one that is just finding an API missing does not
// show it yet.
func (a *optionalAPIs) wakeAll(ctx context.Context) error {
	var instances bergv1.ChallengeInstanceList
	if err := a.mgr.GetClient().List(ctx, &instances, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return err
	}
	for i := range instances.Items {
		select {
		case a.wake <- event.GenericEvent{Object: &instances.Items[i]}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// served reports whether the API server serves a kind.
func served(mgr ctrl.Manager, gvk schema.GroupVersionKind) (bool, error) {
	_, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}
