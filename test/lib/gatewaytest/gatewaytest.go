// Package gatewaytest is the controller of a Gateway for clusters without one: it writes the statuses that a controller
// writes, of Gateways of its class and of their routes, and carries no connection. An instance with a host name is Running
// only when its Gateway serves it.
package gatewaytest

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	// Class is the GatewayClass of the controller.
	Class = "simulated"
	// Controller is the name of the controller.
	Controller = "berg.test/simulated"

	// Namespace has the Gateway of the operator's defaults.
	Namespace = "berg"
	// Name of that Gateway.
	Name = "berg-gateway"

	retryInterval = 200 * time.Millisecond
)

// Serve makes the Gateway of the operator's defaults unless the cluster has one, and answers Gateways of its class and their
// routes until ctx ends. It waits for APIs that are not served yet.
func Serve(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := gatewayv1.Install(scheme); err != nil {
		return err
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	go repeat(ctx, func() error {
		if err := Create(ctx, c, Namespace, Name, "http", "tls"); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	for _, list := range []func() client.ObjectList{
		func() client.ObjectList { return &gatewayv1.GatewayClassList{} },
		func() client.ObjectList { return &gatewayv1.GatewayList{} },
		func() client.ObjectList { return &gatewayv1.HTTPRouteList{} },
		func() client.ObjectList { return &gatewayv1.TLSRouteList{} },
	} {
		go repeat(ctx, func() error { return follow(ctx, c, list()) })
	}
	return nil
}

// repeat tries again until ctx ends: an API may be removed and come back.
func repeat(ctx context.Context, try func() error) {
	for ctx.Err() == nil {
		_ = try()
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// follow answers the objects of a kind until its watch ends.
func follow(ctx context.Context, c client.WithWatch, list client.ObjectList) error {
	if err := c.List(ctx, list); err != nil {
		return err
	}
	if err := meta.EachListItem(list, func(o runtime.Object) error { return answer(ctx, c, o) }); err != nil {
		return err
	}
	// A watch without a version begins with the objects that are there.
	w, err := c.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type != watch.Added && e.Type != watch.Modified {
			continue
		}
		if err := answer(ctx, c, e.Object); err != nil {
			return err
		}
	}
	return nil
}

// answer writes the status of an object that has none. An object that is gone needs none.
func answer(ctx context.Context, c client.Client, object runtime.Object) error {
	o, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	before := o.DeepCopyObject().(client.Object)
	switch o := o.(type) {
	case *gatewayv1.GatewayClass:
		if o.Spec.ControllerName != Controller || meta.IsStatusConditionTrue(o.Status.Conditions, "Accepted") {
			return nil
		}
		meta.SetStatusCondition(&o.Status.Conditions, condition("Accepted"))
	case *gatewayv1.Gateway:
		if o.Spec.GatewayClassName != Class || meta.IsStatusConditionTrue(o.Status.Conditions, "Programmed") {
			return nil
		}
		meta.SetStatusCondition(&o.Status.Conditions, condition("Accepted"))
		meta.SetStatusCondition(&o.Status.Conditions, condition("Programmed"))
		o.Status.Listeners = nil
		for _, l := range o.Spec.Listeners {
			status := gatewayv1.ListenerStatus{Name: l.Name, SupportedKinds: []gatewayv1.RouteGroupKind{}}
			for _, kind := range []string{"Accepted", "Programmed", "ResolvedRefs"} {
				meta.SetStatusCondition(&status.Conditions, condition(kind))
			}
			o.Status.Listeners = append(o.Status.Listeners, status)
		}
	case *gatewayv1.HTTPRoute:
		if len(o.Status.Parents) > 0 {
			return nil
		}
		o.Status.Parents = answers(ctx, c, o.Spec.ParentRefs)
	case *gatewayv1.TLSRoute:
		if len(o.Status.Parents) > 0 {
			return nil
		}
		o.Status.Parents = answers(ctx, c, o.Spec.ParentRefs)
	}
	err := c.Status().Patch(ctx, o, client.MergeFrom(before))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// answers accepts the parents that are Gateways of the class.
func answers(ctx context.Context, c client.Client, refs []gatewayv1.ParentReference) []gatewayv1.RouteParentStatus {
	all := []gatewayv1.RouteParentStatus{}
	for _, ref := range refs {
		g := &gatewayv1.Gateway{}
		if ref.Namespace == nil || c.Get(ctx, client.ObjectKey{Namespace: string(*ref.Namespace), Name: string(ref.Name)}, g) != nil || g.Spec.GatewayClassName != Class {
			continue
		}
		all = append(all, gatewayv1.RouteParentStatus{
			ParentRef: ref, ControllerName: Controller, Conditions: []metav1.Condition{condition("Accepted"), condition("ResolvedRefs")},
		})
	}
	return all
}

func condition(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, LastTransitionTime: metav1.Now()}
}

// Create makes a Gateway of the class with HTTP and TLS listeners of these names, unless one exists: a cluster with a Gateway
// has a controller of its own.
func Create(ctx context.Context, c client.Client, namespace, name, http, tls string) error {
	g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := c.Get(ctx, client.ObjectKeyFromObject(g), g)
	if !apierrors.IsNotFound(err) {
		return err
	}
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: Class}, Spec: gatewayv1.GatewayClassSpec{ControllerName: Controller}}
	all := gatewayv1.NamespacesFromAll
	passthrough := gatewayv1.TLSModePassthrough
	allowed := &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &all}}
	g.Spec = gatewayv1.GatewaySpec{GatewayClassName: Class, Listeners: []gatewayv1.Listener{
		{Name: gatewayv1.SectionName(http), Port: 80, Protocol: gatewayv1.HTTPProtocolType, AllowedRoutes: allowed},
		{Name: gatewayv1.SectionName(tls), Port: 443, Protocol: gatewayv1.TLSProtocolType, AllowedRoutes: allowed, TLS: &gatewayv1.ListenerTLSConfig{Mode: &passthrough}},
	}}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, class, g} {
		if err := client.IgnoreAlreadyExists(c.Create(ctx, o)); err != nil {
			return err
		}
	}
	return nil
}
