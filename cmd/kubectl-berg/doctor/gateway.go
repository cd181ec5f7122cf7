package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
	kitsettings "github.com/bergctf/berg-operator/internal/kit/settings"
)

// routed reports which listeners of the Gateway the Challenges need.
func routed(s Survey) (http, tls bool) {
	for _, c := range s.Challenges {
		for _, container := range c.Spec.Containers {
			for _, p := range container.Ports {
				switch p.EffectiveType() {
				case bergv1.InternalPort, bergv1.PublicPort:
				case bergv1.PublicHTTPRoute:
					http = true
				case bergv1.PublicTLSRoute:
					tls = true
				}
			}
		}
	}
	return http, tls
}

// needed is the level of a missing feature: a problem if it is required, a warning if only some Challenges use it.
func needed(required bool) console.Level {
	if required {
		return console.Problem
	}
	return console.Warning
}

// gatewayAPI is a problem only where a Challenge has a port of the missing kind.
func gatewayAPI(s Survey) []Result {
	api := s.APIs[APIGateway]
	http, tls := routed(s)
	var missing []string
	level := console.Warning
	for resource, required := range map[string]bool{"httproutes": http, "tlsroutes": tls} {
		if !slices.Contains(api.Resources, resource) {
			missing = append(missing, resource)
			if required {
				level = console.Problem
			}
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		return result("Gateway API", level, fmt.Sprintf("%s does not serve %s", APIGateway, strings.Join(missing, " and ")),
			"Install the Gateway API, 1.6 or later, with TLSRoute in v1. Challenges with internal and public ports only do not need it.")
	}
	release := ""
	if api.Release != "" {
		release = " (" + api.Release + ")"
	}
	return result("Gateway API", console.OK, "HTTPRoute and TLSRoute are served"+release, "")
}

// gateway ends at the first problem: without the object there are no listeners to check.
func gateway(s Survey) []Result {
	if len(s.APIs[APIGateway].Resources) == 0 {
		return nil
	}
	if results, hidden := s.hidden("Gateway", "gateway"); hidden {
		return results
	}
	name := s.setting("GATEWAY_NAMESPACE") + "/" + s.setting("GATEWAY_NAME")
	http, tls := routed(s)
	g := s.Gateway
	if g == nil {
		return result("Gateway", needed(http || tls), fmt.Sprintf("the Gateway %s does not exist", name),
			"Create it as in config/berg/samples/prerequisites, or set GATEWAY_NAME and GATEWAY_NAMESPACE.")
	}
	if text := s.gatewayView().Problem(); text != "" {
		return result("Gateway", needed(http || tls), text,
			fmt.Sprintf("Check that the controller of its class %s is installed: kubectl describe gateways.gateway.networking.k8s.io %s -n %s", g.Spec.GatewayClassName, g.Name, g.Namespace))
	}
	results := result("Gateway", console.OK, fmt.Sprintf("%s works at %s", name, strings.Join(addresses(g), ", ")), "")
	if s.Gate != nil {
		if first, _, _ := s.originIn(s.Gate, "", "GATEWAY_NAMESPACE"); first != s.setting("GATEWAY_NAMESPACE") {
			results = append(results, result("Gateway", console.Warning,
				fmt.Sprintf("GATEWAY_NAMESPACE of the gate is %s, and that of the operator %s: an older Gateway of another namespace can take the host names", first, s.setting("GATEWAY_NAMESPACE")),
				"Set GATEWAY_NAMESPACE for both in the ConfigMap "+kitsettings.ConfigMap+".")...)
		}
	}
	httpProtocol := gatewayv1.HTTPSProtocolType
	if s.setting("CHALLENGE_HTTP_TLS") == "false" || s.setting("CHALLENGE_HTTP_PORT") == "80" {
		httpProtocol = gatewayv1.HTTPProtocolType
	}
	results = append(results, listener(s, "CHALLENGE_HTTP_LISTENER_NAME", "CHALLENGE_HTTP_PORT", http, httpProtocol)...)
	return append(results, listener(s, "CHALLENGE_TLS_LISTENER_NAME", "CHALLENGE_TLS_PORT", tls, gatewayv1.TLSProtocolType)...)
}

// addresses is for texts: it is never empty.
func addresses(g *gatewayv1.Gateway) (all []string) {
	for _, a := range g.Status.Addresses {
		all = append(all, a.Value)
	}
	if len(all) == 0 {
		return []string{"an unknown address"}
	}
	return all
}

// listener checks one listener by the name in a setting, in the order in which a route would fail. Of several problems it shows
// the first.
func listener(s Survey, nameSetting, portSetting string, used bool, protocol gatewayv1.ProtocolType) []Result {
	name := s.setting(nameSetting)
	check := "listener " + name
	level := needed(used)
	for _, l := range s.Gateway.Spec.Listeners {
		if string(l.Name) != name {
			continue
		}
		domain := "*." + s.setting("CHALLENGE_DOMAIN")
		switch {
		case l.Protocol != protocol:
			return result(check, level, fmt.Sprintf("its protocol is %s, but the settings need %s", l.Protocol, protocol), "Change the listener, or "+nameSetting+", "+portSetting+" and CHALLENGE_HTTP_TLS.")
		case l.Hostname != nil && !covers(string(*l.Hostname), s.setting("CHALLENGE_DOMAIN")):
			return result(check, level, fmt.Sprintf("its hostname is %s, but instances have names in %s", *l.Hostname, domain), "Change the hostname of the listener, or CHALLENGE_DOMAIN.")
		}
		if message := rejectsRoutes(l.AllowedRoutes); message != "" {
			return result(check, level, message+", but each instance has its own namespace: its routes are rejected",
				fmt.Sprintf("Set allowedRoutes.namespaces of the listener: from: Selector, with matchLabels %s: %s, as in config/berg/samples/prerequisites/gateway.yaml.", bergv1.LabelManagedBy, bergv1.ManagedBy))
		}
		if text := s.gatewayView().ListenerProblem(name); text != "" {
			return result(check, level, text, "Usually this is the certificate: the Secret in certificateRefs must exist in the namespace of the Gateway. Another Gateway with these hosts: kubectl get gateways.gateway.networking.k8s.io -A")
		}
		if configured := s.setting(portSetting); strconv.Itoa(int(l.Port)) != configured {
			return result(check, console.Warning, fmt.Sprintf("its port is %d, but players are shown %s", l.Port, configured),
				fmt.Sprintf("Set %s=%d, unless a load balancer in front of it maps the ports.", portSetting, l.Port))
		}
		return result(check, console.OK, fmt.Sprintf("%s on port %d for %s", l.Protocol, l.Port, domain), "")
	}
	return result(check, level, "the Gateway has no listener with this name", "Add the listener, or set "+nameSetting+".")
}

// covers reports whether the hostname of a listener matches all direct subdomains of a domain. In the
// Gateway API a wildcard matches one label or several, and an empty hostname every name.
func covers(hostname, domain string) bool {
	if hostname == "" {
		return true
	}
	suffix, wild := strings.CutPrefix(strings.ToLower(hostname), "*")
	return wild && strings.HasSuffix("."+strings.ToLower(domain), suffix)
}

// rejectsRoutes is why a listener rejects routes from the namespaces of instances, "" if it allows
// them.
func rejectsRoutes(allowed *gatewayv1.AllowedRoutes) string {
	from := gatewayv1.NamespacesFromSame
	if allowed != nil && allowed.Namespaces != nil && allowed.Namespaces.From != nil {
		from = *allowed.Namespaces.From
	}
	switch from {
	case gatewayv1.NamespacesFromAll:
		return ""
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(allowed.Namespaces.Selector)
		switch {
		case err != nil:
			return fmt.Sprintf("its namespace selector is invalid (%v)", err)
		case selector.Matches(labels.Set(instanceNamespaceLabels)):
			return ""
		default:
			return fmt.Sprintf("it allows routes from namespaces with the labels %s only", cmp.Or(selector.String(), "of an empty selector"))
		}
	default:
		return fmt.Sprintf("it allows routes from %s only", map[bool]string{true: "its own namespace", false: "no namespace"}[from == gatewayv1.NamespacesFromSame])
	}
}

// instanceNamespaceLabels are the labels of the namespaces of all instances.
var instanceNamespaceLabels = map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentNamespace}

// gatewayView returns the Gateway of the settings as it was read.
func (s Survey) gatewayView() view.Gateway {
	return view.Gateway{
		Namespace: s.setting("GATEWAY_NAMESPACE"), Name: s.setting("GATEWAY_NAME"),
		Object: s.Gateway, Class: s.GatewayClass, ClassHidden: s.Unreadable["class"] != "",
	}
}
