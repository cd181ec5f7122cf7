package routing

import (
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Taken has the ports and hosts of Gateways that go before the others. A question costs the labels of a host, however many Gateways there are.
type Taken map[Port]*takenPort

type takenPort struct {
	plain bool
	// exact has the namespaces of listeners by hostname. within has those of all listeners whose hosts a pattern contains.
	exact, within map[string]string
}

// several stands for more than one namespace.
const several = "*"

// add notes the namespace of a listener for its host name and for every wildcard that includes it, or several.
func (t Taken) add(listener *Listener) {
	p := t[listener.Port]
	if p == nil {
		p = &takenPort{plain: listener.Mode == HTTP, exact: map[string]string{}, within: map[string]string{}}
		t[listener.Port] = p
	}
	note := func(all map[string]string, pattern string) {
		namespace := listener.Gateway.Namespace
		if known, found := all[pattern]; found && known != namespace {
			namespace = several
		}
		all[pattern] = namespace
	}
	note(p.exact, listener.Hostname)
	candidates(listener.Hostname, func(pattern string) bool {
		note(p.within, pattern)
		return true
	})
}

// conflict returns why a listener conflicts with one of a Gateway that goes first at the same address, or "". A port has one protocol. Gateways of one
// namespace may share host names. Those of several may not: with a route for the same host, one would get the players of another.
// A wildcard and a name within it conflict, too: a more specific route wins, so a tenant could take single hosts of another one's
// wildcard.
func (t Taken) conflict(namespace string, spec *gatewayv1.Listener, address int) gatewayv1.ListenerConditionReason {
	p := t[Port{address, spec.Port}]
	if p == nil {
		return ""
	}
	if p.plain != (spec.Protocol == gatewayv1.HTTPProtocolType) {
		return gatewayv1.ListenerReasonProtocolConflict
	}
	host := string(ptr.Deref(spec.Hostname, Any))
	isForeign := func(all map[string]string, pattern string) bool {
		owner, found := all[pattern]
		return found && owner != namespace
	}
	shared := isForeign(p.within, host)
	candidates(host, func(pattern string) bool {
		shared = shared || isForeign(p.exact, pattern)
		return !shared
	})
	if shared {
		return gatewayv1.ListenerReasonHostnameConflict
	}
	return ""
}
