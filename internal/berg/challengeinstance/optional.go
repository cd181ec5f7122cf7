package challengeinstance

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
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
)

// optionalKinds are the kinds of APIs that a cluster may lack, by the name of
// their definition. Instances that need none of a missing kind run without it.
var optionalKinds = map[string]client.Object{
	"ciliumnetworkpolicies.cilium.io":      &ciliumv2.CiliumNetworkPolicy{},
	"httproutes.gateway.networking.k8s.io": &gatewayv1.HTTPRoute{},
	"tlsroutes.gateway.networking.k8s.io":  &gatewayv1.TLSRoute{},
}

// servedPause is how soon we look again whether an API whose definition exists
// is served: the API server takes a moment, and no event tells.
const servedPause = 500 * time.Millisecond

// lateWatches opens the watch of an optional kind when its API is installed
// while the operator runs.
type lateWatches struct {
	mgr        ctrl.Manager
	reader     client.Reader
	instances  controller.Controller
	handler    handler.EventHandler
	predicates []predicate.Predicate
	// wake carries instances that wait for an API to the controller of instances.
	wake    chan event.GenericEvent
	watched map[string]bool
}

// served reports whether the API server serves the kind of an object.
func served(mgr ctrl.Manager, object client.Object) (bool, error) {
	gvk, err := apiutil.GVKForObject(object, mgr.GetScheme())
	if err != nil {
		return false, err
	}
	_, err = mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// setup watches the definitions of the optional kinds, their metadata alone.
func (l *lateWatches) setup() error {
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{
		Group: apiextensionsv1.GroupName, Version: "v1", Kind: "CustomResourceDefinition",
	})
	optional := predicate.NewPredicateFuncs(func(o client.Object) bool { return optionalKinds[o.GetName()] != nil })
	return ctrl.NewControllerManagedBy(l.mgr).
		Named("optional-apis").
		For(definition, builder.WithPredicates(optional)).
		Complete(l)
}

// Reconcile opens the watch of one optional kind, once.
func (l *lateWatches) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := optionalKinds[req.Name]
	if object == nil || l.watched[req.Name] {
		return ctrl.Result{}, nil
	}
	ok, err := served(l.mgr, object)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("look up %s: %w", req.Name, err)
	}
	if !ok {
		return ctrl.Result{RequeueAfter: servedPause}, nil
	}
	if err := l.instances.Watch(source.Kind(l.mgr.GetCache(), object, l.handler, l.predicates...)); err != nil {
		return ctrl.Result{}, fmt.Errorf("watch %s: %w", req.Name, err)
	}
	l.watched[req.Name] = true
	log.FromContext(ctx).Info("an API was installed: instances that wait for it go on", "definition", req.Name)
	return ctrl.Result{}, l.wakeWaiting(ctx)
}

// wakeWaiting wakes the instances that an API was missing for.
func (l *lateWatches) wakeWaiting(ctx context.Context) error {
	var instances bergv1.ChallengeInstanceList
	if err := l.reader.List(ctx, &instances); err != nil {
		return err
	}
	for i := range instances.Items {
		if instances.Items[i].Status.Phase != bergv1.PhaseFailed {
			continue
		}
		select {
		case l.wake <- event.GenericEvent{Object: &instances.Items[i]}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
