package challengeinstance

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/reach"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// gateways is the cache of the one Gateway of the settings, of the classes of Gateways and of the replicas of the gate. It is apart from the cache of the
// family: an administrator makes these objects, without our labels, and their API is optional.
type gateways struct {
	ctrlcache.Cache
	// absence of all replicas of the gate.
	absence *absence
}

// GetCache lets the manager start and fill the cache before it competes for the lease.
func (g gateways) GetCache() ctrlcache.Cache { return g.Cache }

// newGateways caches one Gateway by its name, and all classes. It must work on a cluster without the Gateway API.
func newGateways(mgr ctrl.Manager, cfg config.Gateway, namespace string) (gateways, error) {
	// The scopes are known before the API is served. A cache asks its mapper for the scope of a kind when it is made, which would
	// fail on a cluster without the Gateway API.
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, known := range []struct {
		version                schema.GroupVersion
		kind, plural, singular string
		scope                  meta.RESTScope
	}{
		{schema.GroupVersion(gatewayv1.GroupVersion), "Gateway", "gateways", "gateway", meta.RESTScopeNamespace},
		{schema.GroupVersion(gatewayv1.GroupVersion), "GatewayClass", "gatewayclasses", "gatewayclass", meta.RESTScopeRoot},
		{discoveryv1.SchemeGroupVersion, "EndpointSlice", "endpointslices", "endpointslice", meta.RESTScopeNamespace},
	} {
		mapper.AddSpecific(known.version.WithKind(known.kind), known.version.WithResource(known.plural), known.version.WithResource(known.singular), known.scope)
		mapper.Add(known.version.WithKind(known.kind+"List"), known.scope) // as the mapper of the client library
	}
	all, err := ctrlcache.New(mgr.GetConfig(), ctrlcache.Options{
		Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mapper, DefaultTransform: trimGateway,
		ByObject: map[client.Object]ctrlcache.ByObject{
			&gatewayv1.Gateway{}: {Namespaces: map[string]ctrlcache.Config{
				cfg.Namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, cfg.Name)},
			}},
			&discoveryv1.EndpointSlice{}: {Namespaces: map[string]ctrlcache.Config{namespace: {LabelSelector: gateLabels}}},
		},
	})
	if err != nil {
		return gateways{}, fmt.Errorf("the cache of the Gateway: %w", err)
	}
	g := gateways{all, &absence{}}
	return g, mgr.Add(g)
}

// trimGateway keeps the fields from which view.Gateway says whether a Gateway works. A controller counts the routes of a
// Gateway in its status, which would be an event of each instance for each start.
func trimGateway(o any) (any, error) {
	switch o := o.(type) {
	case *gatewayv1.Gateway:
		kept := &gatewayv1.Gateway{TypeMeta: o.TypeMeta, ObjectMeta: identify(o)}
		kept.Spec.GatewayClassName = o.Spec.GatewayClassName
		for _, l := range o.Spec.Listeners {
			kept.Spec.Listeners = append(kept.Spec.Listeners, gatewayv1.Listener{Name: l.Name, Port: l.Port, Protocol: l.Protocol})
		}
		kept.Status.Addresses, kept.Status.Conditions = o.Status.Addresses, status.TrimAnswers(o.Status.Conditions)
		for _, l := range o.Status.Listeners {
			kept.Status.Listeners = append(kept.Status.Listeners, gatewayv1.ListenerStatus{Name: l.Name, Conditions: status.TrimAnswers(l.Conditions)})
		}
		return kept, nil
	case *gatewayv1.GatewayClass:
		kept := &gatewayv1.GatewayClass{TypeMeta: o.TypeMeta, ObjectMeta: identify(o)}
		kept.Spec.ControllerName, kept.Status.Conditions = o.Spec.ControllerName, status.TrimAnswers(o.Status.Conditions)
		return kept, nil
	case *discoveryv1.EndpointSlice:
		return &discoveryv1.EndpointSlice{TypeMeta: o.TypeMeta, ObjectMeta: identify(o), AddressType: o.AddressType, Endpoints: o.Endpoints, Ports: o.Ports}, nil
	default:
		return o, nil
	}
}

func identify(o client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

// gatewayChanged passes changes of a Gateway or a class after trimGateway.
var gatewayChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	switch before := e.ObjectOld.(type) {
	case *gatewayv1.Gateway:
		after := e.ObjectNew.(*gatewayv1.Gateway)
		return before.UID != after.UID || !equality.Semantic.DeepEqual(before.Spec, after.Spec) || !equality.Semantic.DeepEqual(before.Status, after.Status)
	case *gatewayv1.GatewayClass:
		after := e.ObjectNew.(*gatewayv1.GatewayClass)
		return before.UID != after.UID || before.Spec.ControllerName != after.Spec.ControllerName || !equality.Semantic.DeepEqual(before.Status, after.Status)
	default:
		return true
	}
}}

// routeChanged passes changes of routes by users, and other answers of their controller.
var routeChanged = predicate.Or(changes, reconcile.Updates(func(before, after client.Object) bool {
	return !equality.Semantic.DeepEqual(routeParents(before), routeParents(after))
}))

func routeParents(o client.Object) []gatewayv1.RouteParentStatus {
	switch o := o.(type) {
	case *gatewayv1.HTTPRoute:
		return o.Status.Parents
	case *gatewayv1.TLSRoute:
		return o.Status.Parents
	default:
		return nil
	}
}

// endpointsChanged passes EndpointSlices that lead to a pod for the first time, or no longer.
var endpointsChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return leadsToPod(e.Object.(*discoveryv1.EndpointSlice)) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return leadsToPod(e.ObjectOld.(*discoveryv1.EndpointSlice)) != leadsToPod(e.ObjectNew.(*discoveryv1.EndpointSlice))
	},
}

func leadsToPod(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) > 0 }

// served enqueues the instances of routes and EndpointSlices. One that is not Running yet has priority, as in firstReady.
type served struct {
	handler.EventHandler
	ofNew handler.MapFunc
}

// The request is added twice, and the queue keeps the higher priority.
func (h served) Create(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	enqueue(q, firstReadyPriority, h.ofNew(ctx, e.Object)...)
	h.EventHandler.Create(ctx, e, q)
}

func (h served) Update(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	enqueue(q, firstReadyPriority, h.ofNew(ctx, e.ObjectNew)...)
	h.EventHandler.Update(ctx, e, q)
}

// watchOptional returns the watch of a kind that a cluster may lack.
func (r *Reconciler) watchOptional(mgr ctrl.Manager, kind client.Object, owner handler.EventHandler) source.Source {
	if inGateways(kind) {
		return source.Kind(r.gateways.Cache, kind, handler.EnqueueRequestsFromMapFunc(r.allBuilt), gatewayChanged)
	}
	switch kind.(type) {
	case *gatewayv1.HTTPRoute, *gatewayv1.TLSRoute:
		return source.Kind[client.Object](mgr.GetCache(), kind, served{owner, r.ofNamespace(isNew)}, routeChanged)
	default:
		return source.Kind(mgr.GetCache(), kind, owner, changes)
	}
}

// inGateways reports whether a kind is in the cache of gateways.
func inGateways(kind client.Object) bool {
	switch kind.(type) {
	case *gatewayv1.Gateway, *gatewayv1.GatewayClass:
		return true
	default:
		return false
	}
}

// observeWays reads how players reach an instance, as far as it has public ports.
func (r *Reconciler) observeWays(ctx context.Context, c status.Candidate) (w status.Ways, err error) {
	public := func(ports []bergv1.Port) bool { return slices.ContainsFunc(ports, bergv1.Port.Public) }
	if c.Pinned == nil || !slices.ContainsFunc(c.Pinned.Containers, func(c bergv1.Container) bool { return public(c.Ports) }) {
		return w, nil
	}
	namespace := manifests.NamespaceFor(c.Instance)
	if w.Services, err = r.observeServices(ctx, namespace); err != nil {
		return w, err
	}
	if !status.HasRoutes(c.Pinned.Containers) {
		return w, nil
	}
	if w.Gateway, err = r.observeGateway(ctx); err != nil {
		return w, err
	}
	if w.Gateway.ServedByGate() {
		if w.Gate, err = r.observeGate(ctx); err != nil {
			return w, err
		}
	}
	w.Routes = map[string]status.Route{}
	for _, list := range []client.ObjectList{&gatewayv1.HTTPRouteList{}, &gatewayv1.TLSRouteList{}} {
		// A kind that the cluster lacks has no routes. The condition of the routes says so.
		if err := r.list(ctx, list, namespace); err != nil && !meta.IsNoMatchError(err) {
			return w, err
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object)
			w.Routes[o.GetName()] = status.Route{Created: o.GetCreationTimestamp().Time, Parents: routeParents(o)}
			return nil
		}); err != nil {
			return w, err
		}
	}
	return w, nil
}

// list reads objects that are not changed, and need not wait for own writes.
func (r *Reconciler) list(ctx context.Context, list client.ObjectList, namespace string) error {
	return r.Client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
}

// observeServices reads the Services of a namespace, and whether they lead to pods.
func (r *Reconciler) observeServices(ctx context.Context, namespace string) (map[string]status.Service, error) {
	var services corev1.ServiceList
	if err := r.list(ctx, &services, namespace); err != nil {
		return nil, err
	}
	var found discoveryv1.EndpointSliceList
	if err := r.list(ctx, &found, namespace); err != nil {
		return nil, err
	}
	leading := map[string]bool{}
	for n := range found.Items {
		if leadsToPod(&found.Items[n]) {
			leading[found.Items[n].Labels[discoveryv1.LabelServiceName]] = true
		}
	}
	all := make(map[string]status.Service, len(services.Items))
	for n := range services.Items {
		s := &services.Items[n]
		all[s.Name] = status.Service{Created: s.CreationTimestamp.Time, Leads: leading[s.Name]}
	}
	return all, nil
}

// observeGateway reads the Gateway of the settings and its class.
func (r *Reconciler) observeGateway(ctx context.Context) (view.Gateway, error) {
	g := view.Gateway{Namespace: r.Config.Gateway.Namespace, Name: r.Config.Gateway.Name}
	object := &gatewayv1.Gateway{}
	if found, err := r.gatewayFound(ctx, types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, object); err != nil || !found {
		return g, err
	}
	g.Object = object
	class := &gatewayv1.GatewayClass{}
	found, err := r.gatewayFound(ctx, types.NamespacedName{Name: string(object.Spec.GatewayClassName)}, class)
	if found {
		g.Class = class
	}
	return g, err
}

// gatewayFound reads a Gateway or a class. A kind that is not served has no objects.
func (r *Reconciler) gatewayFound(ctx context.Context, key types.NamespacedName, o client.Object) (bool, error) {
	gvk, err := r.Client.GroupVersionKindFor(o)
	if err != nil {
		return false, err
	}
	if r.Presence.Check(gvk) != nil {
		return false, nil //nolint:nilerr // the kind is not served
	}
	err = r.gateways.Get(ctx, key, o)
	return err == nil, client.IgnoreNotFound(err)
}

// reachGateway observes whether players reach an instance through its Gateway, and reports whether the instance waits for that.
func (r *Reconciler) reachGateway(out *status.Outcome, key types.NamespacedName, now time.Time, requeue func()) (waits bool) {
	if out.Ways.Gate == nil {
		return r.connectGate(out, status.ToGate(*out, now), key, requeue)
	}
	return r.askGate(out, status.ToAsk(*out, now), key, requeue)
}

// connectGate connects to the listeners of the Gateway, as connect does to node ports, and reports whether the instance waits
// for that.
func (r *Reconciler) connectGate(out *status.Outcome, targets []status.GateTarget, key types.NamespacedName, requeue func()) (waits bool) {
	if len(targets) == 0 {
		if status.HasRoutes(out.Pinned.Containers) && out.Ways.Gateway.Object != nil {
			out.Gate = status.ConnectionNotMade
		}
		return false
	}
	all := make([]reach.Target, 0, len(targets))
	for _, t := range targets {
		all = append(all, reach.Target{Address: t.Address, Host: t.Host})
	}
	over, connected := r.Reach.Gate(key, out.Instance.UID, all, requeue)
	switch {
	case !over:
		return true
	case connected:
		out.Gate = status.ConnectionMade
	default:
		out.Gate = status.ConnectionNotMade
	}
	return false
}
