// Package gateprocess is what processes of berg-gate need at an API server, and the pods that tests play for them.
package gateprocess

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/test/lib/installed"
)

const (
	// Account is the ServiceAccount of the gate in installed.Namespace.
	Account = "berg-gate"
	// Class is the GatewayClass of the gate.
	Class = "berg-gate"
	// Certificate is the Secret with the certificate of Gateways.
	Certificate = "certificate"
	// Controller writes the statuses of Gateways of the class.
	Controller = "berg.norelect.ch/gate"
)

// Install installs config/gate without its pods, with a certificate for a domain that the gate may read, in a new namespace.
func Install(ctx context.Context, c client.Client, namespace, domain string) error {
	for _, name := range []string{installed.Namespace, namespace} {
		if err := client.IgnoreAlreadyExists(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})); err != nil {
			return err
		}
	}
	if err := installed.Folder(ctx, c, "config/gate", "gate"); err != nil {
		return err
	}
	secret, err := NewCertificate(namespace, domain)
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: Certificate}
	for _, object := range []client.Object{
		secret,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{Certificate}, Verbs: []string{"get", "list", "watch"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: Certificate},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: installed.Namespace, Name: Account}},
		},
		NewClass(Class, Controller),
	} {
		if err := client.IgnoreAlreadyExists(c.Create(ctx, object)); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// NewClass returns a GatewayClass.
func NewClass(name, controller string) *gatewayv1.GatewayClass {
	return &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(controller)}}
}

// NewCertificate returns a Secret with a new certificate for the hosts of a domain.
func NewCertificate(namespace, domain string) (*corev1.Secret, error) {
	certificate, key, err := certutil.GenerateSelfSignedCertKeyWithFixtures("*."+domain, nil, []string{"*." + domain}, "")
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Certificate}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}, err
}

// NewGateway returns a Gateway with the listeners plain, secure and raw at these ports. The last one serves bytes within TLS.
func NewGateway(namespace, name, class string, plain, secure, raw int32) *gatewayv1.Gateway {
	ends := &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: Certificate}}}
	all := &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
	return &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: gatewayv1.ObjectName(class), Listeners: []gatewayv1.Listener{
			{Name: "plain", Port: plain, Protocol: gatewayv1.HTTPProtocolType, AllowedRoutes: all},
			{Name: "secure", Port: secure, Protocol: gatewayv1.HTTPSProtocolType, TLS: ends, AllowedRoutes: all},
			{Name: "raw", Port: raw, Protocol: gatewayv1.TLSProtocolType, TLS: ends, AllowedRoutes: all},
		}},
	}
}

func parents(namespace, gateway string, listeners ...string) gatewayv1.CommonRouteSpec {
	var refs []gatewayv1.ParentReference
	for _, listener := range listeners {
		refs = append(refs, gatewayv1.ParentReference{
			Namespace: ptr.To(gatewayv1.Namespace(namespace)), Name: gatewayv1.ObjectName(gateway), SectionName: ptr.To(gatewayv1.SectionName(listener)),
		})
	}
	return gatewayv1.CommonRouteSpec{ParentRefs: refs}
}

func backend(service string) gatewayv1.BackendRef {
	return gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(service), Port: ptr.To(gatewayv1.PortNumber(80))}}
}

// NewHTTPRoute returns a route from a host at the listeners plain and secure of a Gateway to a Service.
func NewHTTPRoute(namespace, name, gateway, host, service string) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: parents(namespace, gateway, "plain", "secure"), Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(host)},
		Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: backend(service)}}}},
	}}
}

// NewTLSRoute returns a route from a host at the listener raw of a Gateway to a Service.
func NewTLSRoute(namespace, name, gateway, host, service string) *gatewayv1.TLSRoute {
	return &gatewayv1.TLSRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: gatewayv1.TLSRouteSpec{
		CommonRouteSpec: parents(namespace, gateway, "raw"), Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(host)},
		Rules: []gatewayv1.TLSRouteRule{{BackendRefs: []gatewayv1.BackendRef{backend(service)}}},
	}}
}

// SetPod makes a Service whose only pod, with this UID, is at an address of this machine.
func SetPod(ctx context.Context, c client.Client, namespace, service, address, uid string) error {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: service}
	err := c.Create(ctx, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	if client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta}
	err = c.Get(ctx, client.ObjectKeyFromObject(slice), slice)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	write := func() error { return c.Update(ctx, slice) }
	if err != nil {
		write = func() error { return c.Create(ctx, slice) }
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	slice.AddressType = discoveryv1.AddressTypeIPv4
	slice.Ports = []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(port)), Protocol: ptr.To(corev1.ProtocolTCP)}}
	slice.Endpoints = []discoveryv1.Endpoint{{
		Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: uid, UID: types.UID(uid)},
	}}
	return write()
}

// OwnAddress returns an address of this machine that is not the loopback, which EndpointSlices must not name.
func OwnAddress() (string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, address := range all {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no IPv4 address besides the loopback: EndpointSlices need one")
}
