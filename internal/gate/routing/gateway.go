package routing

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// The kinds of routes.
const (
	HTTPRoute = "HTTPRoute"
	TLSRoute  = "TLSRoute"
)

// Cluster is what a translation reads of the cluster.
type Cluster struct {
	Services Services
	Granted  Grants
	// Labels of a namespace, false if it is not known.
	Labels func(namespace string) (labels.Set, bool)
	// Certificate of a Secret. The error is for the author of the Gateway, and has no content of the Secret.
	Certificate func(types.NamespacedName) (*tls.Certificate, error)
	// Ports that can be served.
	Ports []int32
}

// Gateway is the translation of a Gateway.
type Gateway struct {
	UID       types.UID
	Listeners []*Listener
	// Conditions of the Gateway, and of each listener in the order of the spec.
	Conditions []metav1.Condition
	Statuses   []gatewayv1.ListenerStatus
}

// Equal reports whether another translation serves the same. The conditions have the generation of the Gateway. Certificates are
// compared by their pointers: each read of a Secret makes a new one.
func (g *Gateway) Equal(other Gateway) bool {
	return g.UID == other.UID && reflect.DeepEqual(g.Conditions, other.Conditions) && reflect.DeepEqual(g.Statuses, other.Statuses) &&
		slices.EqualFunc(g.Listeners, other.Listeners, func(a, b *Listener) bool {
			return a.Port == b.Port && a.Valid == b.Valid && slices.Equal(a.Certificates, b.Certificates)
		})
}

// CompileGateway translates a Gateway that is served at one of the addresses. taken has the hosts of the earlier Gateways, and then its
// own, too, also while a certificate is missing. AttachedRoutes of the statuses are not counted yet. The hosts of a listener
// without a certificate count as taken, too: else another tenant would get its players while the Secret is missing.
func CompileGateway(gateway *gatewayv1.Gateway, address int, taken Taken, cluster Cluster) Gateway {
	out := Gateway{UID: gateway.UID}
	accepted, valid := 0, 0
	conflicts := findConflicts(gateway.Spec.Listeners)
	for i := range gateway.Spec.Listeners {
		if conflicts[i] == "" {
			conflicts[i] = taken.conflict(gateway.Namespace, &gateway.Spec.Listeners[i], address)
		}
	}
	for i := range gateway.Spec.Listeners {
		listener, status := compileListener(gateway, i, address, conflicts[i], cluster)
		out.Listeners = append(out.Listeners, listener)
		out.Statuses = append(out.Statuses, status)
		if isTrue(status.Conditions, string(gatewayv1.ListenerConditionAccepted)) {
			accepted++
		}
		if listener.Valid {
			valid++
		}
	}
	for i, listener := range out.Listeners {
		if conflicts[i] == "" && isTrue(out.Statuses[i].Conditions, string(gatewayv1.ListenerConditionAccepted)) {
			taken.add(listener)
		}
	}
	out.Conditions = gatewayConditions(gateway, accepted, valid)
	return out
}

// gatewayConditions follows the Gateway API: a Gateway is accepted as soon as one listener is, and programmed as soon as one is
// served. What is wrong with the others is in their own conditions.
func gatewayConditions(gateway *gatewayv1.Gateway, accepted, valid int) []metav1.Condition {
	condition := func(kind gatewayv1.GatewayConditionType, ok bool, reason gatewayv1.GatewayConditionReason, message string) metav1.Condition {
		return newCondition(string(kind), ok, string(reason), message, gateway.Generation)
	}
	total := len(gateway.Spec.Listeners)
	switch {
	case gateway.Spec.Infrastructure != nil && gateway.Spec.Infrastructure.ParametersRef != nil:
		return []metav1.Condition{
			condition(gatewayv1.GatewayConditionAccepted, false, gatewayv1.GatewayReasonInvalidParameters, "infrastructure.parametersRef is not supported: remove it"),
			condition(gatewayv1.GatewayConditionProgrammed, false, gatewayv1.GatewayReasonInvalid, "the Gateway is not accepted"),
		}
	case accepted == 0:
		return []metav1.Condition{
			condition(gatewayv1.GatewayConditionAccepted, false, gatewayv1.GatewayReasonListenersNotValid, "no listener is accepted: status.listeners says why"),
			condition(gatewayv1.GatewayConditionProgrammed, false, gatewayv1.GatewayReasonInvalid, "no listener is accepted"),
		}
	}
	out := []metav1.Condition{condition(gatewayv1.GatewayConditionAccepted, true, gatewayv1.GatewayReasonAccepted, "the Gateway is accepted")}
	if accepted < total {
		out[0].Reason, out[0].Message = string(gatewayv1.GatewayReasonListenersNotValid), "some listeners are not accepted: status.listeners says why"
	}
	if valid == 0 {
		return append(out, condition(gatewayv1.GatewayConditionProgrammed, false, gatewayv1.GatewayReasonInvalid, "no listener is served: status.listeners says why"))
	}
	return append(out, condition(gatewayv1.GatewayConditionProgrammed, true, gatewayv1.GatewayReasonProgrammed, fmt.Sprintf("%d of %d listeners are served", valid, total)))
}

// findConflicts returns for each listener why it conflicts with another one of the same Gateway, or "".
func findConflicts(listeners []gatewayv1.Listener) []gatewayv1.ListenerConditionReason {
	conflicts := make([]gatewayv1.ListenerConditionReason, len(listeners))
	for i := range listeners {
		for j := range listeners {
			if i == j || listeners[i].Port != listeners[j].Port {
				continue
			}
			switch {
			case (listeners[i].Protocol == gatewayv1.HTTPProtocolType) != (listeners[j].Protocol == gatewayv1.HTTPProtocolType):
				conflicts[i] = gatewayv1.ListenerReasonProtocolConflict
			case ptr.Deref(listeners[i].Hostname, Any) == ptr.Deref(listeners[j].Hostname, Any):
				conflicts[i] = gatewayv1.ListenerReasonHostnameConflict
			}
		}
	}
	return conflicts
}

// CompareAge orders Gateways and routes as the Gateway API wants: the older one goes first, then the one whose name is first.
func CompareAge(a, b metav1.Object) int {
	return cmp.Or(
		a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
		cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()),
	)
}

// compileListener returns a listener, also one that is not valid, with its status. A listener that
// needs certificates is valid only with all of them. conflict is empty, or the reason that it has.
func compileListener(gateway *gatewayv1.Gateway, index, address int, conflict gatewayv1.ListenerConditionReason, cluster Cluster) (*Listener, gatewayv1.ListenerStatus) {
	spec := &gateway.Spec.Listeners[index]
	listener := &Listener{
		Gateway: types.NamespacedName{Namespace: gateway.Namespace, Name: gateway.Name}, Name: string(spec.Name),
		Port: Port{address, spec.Port}, Hostname: string(ptr.Deref(spec.Hostname, Any)),
	}
	status := gatewayv1.ListenerStatus{Name: spec.Name, SupportedKinds: []gatewayv1.RouteGroupKind{}}
	set := func(kind gatewayv1.ListenerConditionType, ok bool, reason gatewayv1.ListenerConditionReason, message string) {
		status.Conditions = append(status.Conditions, newCondition(string(kind), ok, string(reason), message, gateway.Generation))
	}

	mode, refused, message := listenerMode(spec, cluster.Ports)
	listener.Mode = mode
	if refused != "" {
		set(gatewayv1.ListenerConditionAccepted, false, refused, message)
	} else {
		set(gatewayv1.ListenerConditionAccepted, true, gatewayv1.ListenerReasonAccepted, "the listener is accepted")
	}
	if conflict != "" {
		set(gatewayv1.ListenerConditionConflicted, true, conflict, "another listener of this Gateway, or one of a Gateway in the namespace GATEWAY_NAMESPACE or of an older Gateway, has the same port and host name, or another protocol at this port")
	} else {
		set(gatewayv1.ListenerConditionConflicted, false, gatewayv1.ListenerReasonNoConflicts, "no other listener conflicts")
	}

	reason, message := gatewayv1.ListenerReasonResolvedRefs, ""
	if refused == "" {
		listener.Kinds, reason, message = routeKinds(spec, mode)
		for _, kind := range listener.Kinds {
			status.SupportedKinds = append(status.SupportedKinds, gatewayv1.RouteGroupKind{Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: gatewayv1.Kind(kind)})
		}
		if mode == HTTPS || mode == Terminate {
			if certificates, refused, err := listenerCertificates(gateway.Namespace, spec, cluster); err != nil {
				reason, message = refused, err.Error()
			} else {
				listener.Certificates = certificates
			}
		}
	}
	resolved := reason == gatewayv1.ListenerReasonResolvedRefs
	set(gatewayv1.ListenerConditionResolvedRefs, resolved, reason, cmp.Or(message, "all references are resolved"))

	namespaces, err := namespaceFilter(spec, gateway.Namespace)
	if err != nil { // the schema lets no such selector pass
		namespaces = func(string, labels.Set) bool { return false }
	}
	listener.namespaces = namespaces
	needsCertificate := mode == HTTPS || mode == Terminate
	listener.Valid = refused == "" && conflict == "" && (!needsCertificate || len(listener.Certificates) > 0) && len(listener.Kinds) > 0
	if listener.Valid {
		set(gatewayv1.ListenerConditionProgrammed, true, gatewayv1.ListenerReasonProgrammed, "the listener is served")
	} else {
		set(gatewayv1.ListenerConditionProgrammed, false, gatewayv1.ListenerReasonInvalid, "the listener is not served: the other conditions say why")
	}
	return listener, status
}

// listenerMode returns how connections are treated, or the reason why the listener is refused, with a sentence.
func listenerMode(spec *gatewayv1.Listener, ports []int32) (Mode, gatewayv1.ListenerConditionReason, string) {
	terminates := spec.TLS != nil && ptr.Deref(spec.TLS.Mode, gatewayv1.TLSModeTerminate) == gatewayv1.TLSModeTerminate
	var mode Mode
	switch {
	case spec.Protocol == gatewayv1.HTTPProtocolType:
		mode = HTTP
	case spec.Protocol == gatewayv1.HTTPSProtocolType && terminates:
		mode = HTTPS
	case spec.Protocol == gatewayv1.TLSProtocolType && terminates:
		mode = Terminate
	case spec.Protocol == gatewayv1.TLSProtocolType:
		mode = Passthrough
	case spec.Protocol == gatewayv1.HTTPSProtocolType:
		return HTTPS, gatewayv1.ListenerReasonUnsupportedValue, "protocol HTTPS needs tls.mode Terminate; use protocol TLS to pass connections through"
	default:
		return HTTP, gatewayv1.ListenerReasonUnsupportedProtocol, fmt.Sprintf("protocol %s is not supported: use HTTP, HTTPS or TLS", spec.Protocol)
	}
	switch {
	case !slices.Contains(ports, spec.Port):
		return mode, gatewayv1.ListenerReasonPortUnavailable, fmt.Sprintf("port %d is not served: use one of %v, or add it to GATE_PORTS", spec.Port, ports)
	case spec.TLS != nil && len(spec.TLS.Options) > 0:
		return mode, gatewayv1.ListenerReasonUnsupportedValue, "tls.options are not supported: remove them"
	default:
		return mode, "", ""
	}
}

// routeKinds returns the kinds of routes that may attach.
func routeKinds(spec *gatewayv1.Listener, mode Mode) ([]string, gatewayv1.ListenerConditionReason, string) {
	supported := HTTPRoute
	if mode == Terminate || mode == Passthrough {
		supported = TLSRoute
	}
	if spec.AllowedRoutes == nil || len(spec.AllowedRoutes.Kinds) == 0 {
		return []string{supported}, gatewayv1.ListenerReasonResolvedRefs, ""
	}
	var kinds []string
	reason, message := gatewayv1.ListenerReasonResolvedRefs, ""
	for _, kind := range spec.AllowedRoutes.Kinds {
		if ptr.Deref(kind.Group, gatewayv1.GroupName) == gatewayv1.GroupName && string(kind.Kind) == supported {
			kinds = []string{supported}
			continue
		}
		reason, message = gatewayv1.ListenerReasonInvalidRouteKinds, fmt.Sprintf("allowedRoutes.kinds: %s is not supported with protocol %s: use %s", kind.Kind, spec.Protocol, supported)
	}
	return kinds, reason, message
}

// listenerCertificates loads the certificates of a listener.
func listenerCertificates(namespace string, spec *gatewayv1.Listener, cluster Cluster) ([]*tls.Certificate, gatewayv1.ListenerConditionReason, error) {
	var certificates []*tls.Certificate
	for _, ref := range spec.TLS.CertificateRefs {
		if ptr.Deref(ref.Group, "") != "" || ptr.Deref(ref.Kind, "Secret") != "Secret" {
			return nil, gatewayv1.ListenerReasonInvalidCertificateRef, fmt.Errorf("tls.certificateRefs: %s is not a Secret", ref.Name)
		}
		secret := types.NamespacedName{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(namespace))), Name: string(ref.Name)}
		if secret.Namespace != namespace && !cluster.Granted("Gateway", namespace, "Secret", secret) {
			return nil, gatewayv1.ListenerReasonRefNotPermitted, fmt.Errorf("tls.certificateRefs: no ReferenceGrant in namespace %s allows the Secret %s", secret.Namespace, secret.Name)
		}
		certificate, err := cluster.Certificate(secret)
		if err != nil {
			return nil, gatewayv1.ListenerReasonInvalidCertificateRef, fmt.Errorf("tls.certificateRefs: Secret %s: %w", secret, err)
		}
		certificates = append(certificates, certificate)
	}
	if len(certificates) == 0 {
		return nil, gatewayv1.ListenerReasonInvalidCertificateRef, errors.New("tls.certificateRefs: name a Secret of type kubernetes.io/tls")
	}
	return certificates, "", nil
}

// namespaceFilter returns which namespaces' routes may attach.
func namespaceFilter(spec *gatewayv1.Listener, own string) (func(string, labels.Set) bool, error) {
	from, selector := gatewayv1.NamespacesFromSame, (*metav1.LabelSelector)(nil)
	if spec.AllowedRoutes != nil && spec.AllowedRoutes.Namespaces != nil {
		from, selector = ptr.Deref(spec.AllowedRoutes.Namespaces.From, from), spec.AllowedRoutes.Namespaces.Selector
	}
	switch from {
	case gatewayv1.NamespacesFromAll:
		return func(string, labels.Set) bool { return true }, nil
	case gatewayv1.NamespacesFromSame:
		return func(namespace string, _ labels.Set) bool { return namespace == own }, nil
	case gatewayv1.NamespacesFromSelector:
		wanted, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return nil, fmt.Errorf("allowedRoutes.namespaces.selector: %w", err)
		}
		return func(_ string, set labels.Set) bool { return wanted.Matches(set) }, nil
	default:
		return func(string, labels.Set) bool { return false }, nil
	}
}

func newCondition(kind string, ok bool, reason, message string, generation int64) metav1.Condition {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation}
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind && c.Status == metav1.ConditionTrue })
}
