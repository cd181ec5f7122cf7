package follow

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/upstream"
)

// Scheme returns the kinds that the gate reads.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(gatewayv1.Install(scheme))
	return scheme
}

// CacheOptions keep of each object what the gate reads. The Secret of a Gateway is in no cache: certificates.go watches each by
// its name.
func CacheOptions() cache.Options {
	return cache.Options{
		Scheme: Scheme(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Service{}: {Transform: func(object any) (any, error) {
				if service, ok := object.(*corev1.Service); ok {
					return &corev1.Service{
						ObjectMeta: nameOnly(service), Status: service.Status,
						Spec: corev1.ServiceSpec{Type: service.Spec.Type, Ports: service.Spec.Ports, ExternalIPs: service.Spec.ExternalIPs, ClusterIPs: service.Spec.ClusterIPs},
					}, nil
				}
				return object, nil
			}},
			&discoveryv1.EndpointSlice{}: {Transform: func(object any) (any, error) {
				if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
					service := slice.Labels[discoveryv1.LabelServiceName]
					slice.ObjectMeta = nameOnly(slice)
					slice.Labels = map[string]string{discoveryv1.LabelServiceName: service}
					for i := range slice.Endpoints {
						slice.Endpoints[i] = addressOnly(&slice.Endpoints[i])
					}
				}
				return object, nil
			}},
		},
		DefaultTransform: func(object any) (any, error) {
			if o, ok := object.(client.Object); ok {
				var kept map[string]string
				if cause := o.GetAnnotations()[bergv1.AnnotationCause]; cause != "" && len(cause) <= maxCause {
					kept = map[string]string{bergv1.AnnotationCause: cause}
				}
				o.SetManagedFields(nil)
				o.SetAnnotations(kept)
				o.SetFinalizers(nil)
				o.SetOwnerReferences(nil)
				o.SetLabels(boundLabels(o))
			}
			return object, nil
		},
	}
}

// What others write is bounded. A cause is one word, and a namespace rarely has ten labels.
const maxCause, maxLabels = 64, 64

// boundLabels returns the labels of a namespace, by which listeners select it, and none of other objects. Of a namespace with too many only
// those of its Challenge are kept: no other selector matches it.
func boundLabels(o client.Object) map[string]string {
	all := o.GetLabels()
	if _, namespace := o.(*metav1.PartialObjectMetadata); !namespace {
		return nil
	}
	if len(all) <= maxLabels {
		return all
	}
	few := map[string]string{}
	for _, key := range instanceLabels {
		if value, found := all[key]; found {
			few[key] = value
		}
	}
	return few
}

var instanceLabels = []string{corev1.LabelMetadataName, bergv1.LabelManagedBy, bergv1.LabelChallengeNamespace, bergv1.LabelChallenge}

func nameOnly(object client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion()}
}

func addressOnly(endpoint *discoveryv1.Endpoint) discoveryv1.Endpoint {
	// Others than the first address are not used, and may be many.
	out := discoveryv1.Endpoint{Addresses: slices.Clone(endpoint.Addresses[:min(len(endpoint.Addresses), 1)]), Conditions: endpoint.Conditions}
	if endpoint.TargetRef != nil {
		out.TargetRef = &corev1.ObjectReference{UID: endpoint.TargetRef.UID}
	}
	return out
}

// Watch tells State and Endpoints of each change. It returns when all handlers are registered; synced reports when each has seen
// the objects that existed.
func Watch(ctx context.Context, c cache.Cache, state *State, endpoints *upstream.Endpoints) (synced []toolscache.InformerSynced, err error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	for _, watched := range []struct {
		object  client.Object
		set     func(client.Object)
		deleted func(client.Object)
	}{
		{namespace, func(o client.Object) { state.SetNamespace(o.GetName(), labels.Set(o.GetLabels())) }, func(o client.Object) { state.DeleteNamespace(o.GetName()) }},
		{&gatewayv1.GatewayClass{}, on(state.SetClass), func(o client.Object) { state.DeleteClass(o.GetName()) }},
		{&gatewayv1.ReferenceGrant{}, on(state.SetGrant), func(o client.Object) { state.DeleteGrant(client.ObjectKeyFromObject(o)) }},
		{&gatewayv1.Gateway{}, on(state.SetGateway), func(o client.Object) { state.DeleteGateway(client.ObjectKeyFromObject(o)) }},
		{&corev1.Service{}, on(state.SetService), func(o client.Object) { state.DeleteService(client.ObjectKeyFromObject(o)) }},
		{&discoveryv1.EndpointSlice{}, on(endpoints.Set), func(o client.Object) { endpoints.Delete(client.ObjectKeyFromObject(o)) }},
		{&gatewayv1.HTTPRoute{}, on(state.SetHTTPRoute), func(o client.Object) { state.DeleteRoute(routeKey(routing.HTTPRoute, o)) }},
		{&gatewayv1.TLSRoute{}, on(state.SetTLSRoute), func(o client.Object) { state.DeleteRoute(routeKey(routing.TLSRoute, o)) }},
	} {
		informer, err := c.GetInformer(ctx, watched.object)
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", watched.object, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { withObject(o, watched.set) },
			UpdateFunc: func(_, o any) { withObject(o, watched.set) },
			DeleteFunc: func(o any) {
				if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = tombstone.Obj
				}
				withObject(o, watched.deleted)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", watched.object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

func withObject(object any, do func(client.Object)) {
	if o, ok := object.(client.Object); ok {
		do(o)
	}
}

func on[T client.Object](set func(T)) func(client.Object) {
	return func(object client.Object) {
		if o, ok := object.(T); ok {
			set(o)
		}
	}
}

func routeKey(kind string, object client.Object) routing.Key {
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	return routing.Key{Kind: kind, Namespace: name.Namespace, Name: name.Name}
}
