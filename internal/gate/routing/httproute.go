package routing

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Redirect is an answer that sends the client to another address. Empty fields keep the requested value.
type Redirect struct {
	Scheme, Hostname string
	Port             int32
	Code             int
}

// Rule is one match of a rule of an HTTPRoute, with what the rule does.
type Rule struct {
	Match    Match
	Request  HeaderChange
	Response HeaderChange
	Redirect *Redirect
	Backends []Backend
	// Timeout of the whole request. 0: none.
	Timeout time.Duration
	// Cause is why the instance of the route does not run, as its operator says; "" if it says nothing.
	Cause bergv1.Cause
	order order
}

// order decides between rules that match equally well.
type order struct {
	created   time.Time
	namespace string
	name      string
	index     int
}

// compileRules translates the rules of an HTTPRoute. What is not supported is an error, which the status shows. What refers to
// nothing is a problem: the other references work.
func compileRules(route *gatewayv1.HTTPRoute, services Services, granted Grants) ([]*Rule, *problem, error) {
	var rules []*Rule
	var first *problem
	for i := range route.Spec.Rules {
		rule, unresolved, err := compileRule(route, &route.Spec.Rules[i], services, granted)
		if err != nil {
			return nil, nil, fmt.Errorf("rules[%d]: %w", i, err)
		}
		if first == nil {
			first = unresolved
		}
		matches := route.Spec.Rules[i].Matches
		if len(matches) == 0 {
			matches = []gatewayv1.HTTPRouteMatch{{}}
		}
		for j := range matches {
			if rule.Match, err = compileMatch(&matches[j]); err != nil {
				return nil, nil, fmt.Errorf("rules[%d].matches[%d]: %w", i, j, err)
			}
			rule.Cause = bergv1.Cause(route.Annotations[bergv1.AnnotationCause])
			rule.order = order{route.CreationTimestamp.Time, route.Namespace, route.Name, i}
			rules = append(rules, ptr.To(rule))
		}
	}
	return rules, first, nil
}

// compileRule returns an error for a rule that the gate cannot serve as it is written, because it would otherwise mean something
// else, and a problem for a backend that is missing: then the rule is served, and answers with an error.
func compileRule(route *gatewayv1.HTTPRoute, spec *gatewayv1.HTTPRouteRule, services Services, granted Grants) (Rule, *problem, error) {
	var rule Rule
	if spec.Retry != nil || spec.SessionPersistence != nil {
		return rule, nil, errors.New("retry and sessionPersistence are not supported: remove them")
	}
	if spec.Timeouts != nil {
		if spec.Timeouts.BackendRequest != nil {
			return rule, nil, errors.New("timeouts.backendRequest is not supported: use timeouts.request")
		}
		if spec.Timeouts.Request != nil {
			timeout, err := time.ParseDuration(string(*spec.Timeouts.Request))
			if err != nil {
				return rule, nil, fmt.Errorf("timeouts.request: %w", err)
			}
			rule.Timeout = timeout
		}
	}
	for i := range spec.Filters {
		if err := rule.filter(&spec.Filters[i]); err != nil {
			return rule, nil, fmt.Errorf("filters[%d]: %w", i, err)
		}
	}
	var first *problem
	for i := range spec.BackendRefs {
		backend, unresolved := resolve(spec.BackendRefs[i].BackendRef, "HTTPRoute", route.Namespace, services, granted)
		if first == nil {
			first = unresolved
		}
		for j := range spec.BackendRefs[i].Filters {
			filter := &spec.BackendRefs[i].Filters[j]
			if filter.Type != gatewayv1.HTTPRouteFilterRequestHeaderModifier {
				return rule, nil, fmt.Errorf("backendRefs[%d].filters[%d]: %s is not supported: use RequestHeaderModifier", i, j, filter.Type)
			}
			backend.Headers = headerChange(filter.RequestHeaderModifier)
		}
		rule.Backends = append(rule.Backends, backend)
	}
	return rule, first, nil
}

// filter adds what a filter does to the rule.
func (r *Rule) filter(filter *gatewayv1.HTTPRouteFilter) error {
	switch filter.Type {
	case gatewayv1.HTTPRouteFilterRequestHeaderModifier:
		r.Request = headerChange(filter.RequestHeaderModifier)
	case gatewayv1.HTTPRouteFilterResponseHeaderModifier:
		r.Response = headerChange(filter.ResponseHeaderModifier)
	case gatewayv1.HTTPRouteFilterRequestRedirect:
		redirect := filter.RequestRedirect
		if redirect.Path != nil {
			return errors.New("requestRedirect.path is not supported: remove it")
		}
		r.Redirect = &Redirect{
			Scheme: ptr.Deref(redirect.Scheme, ""), Hostname: string(ptr.Deref(redirect.Hostname, "")),
			Port: ptr.Deref(redirect.Port, 0), Code: ptr.Deref(redirect.StatusCode, http.StatusFound),
		}
	default:
		return fmt.Errorf("%s is not supported: use RequestHeaderModifier, ResponseHeaderModifier or RequestRedirect", filter.Type)
	}
	return nil
}

// Location returns the address that a redirect leads to.
func (r Redirect) Location(req *http.Request, secure bool, listenerPort int32) string {
	location := *req.URL
	location.Scheme = r.Scheme
	if location.Scheme == "" {
		location.Scheme = map[bool]string{true: "https", false: "http"}[secure]
	}
	host := r.Hostname
	if host == "" {
		host, _ = SplitHost(req.Host)
	}
	port := r.Port
	if port == 0 && r.Scheme == "" {
		port = listenerPort
	}
	if usual := map[string]int32{"http": 80, "https": 443}; port != 0 && port != usual[location.Scheme] {
		host = fmt.Sprintf("%s:%d", host, port)
	}
	location.Host = host
	return location.String()
}

// SplitHost separates a port from a Host header, and returns the name in lower case, without a final dot.
func SplitHost(hostPort string) (host, port string) {
	host = hostPort
	if colon := strings.LastIndexByte(hostPort, ':'); colon >= 0 && !strings.HasSuffix(hostPort, "]") {
		host, port = hostPort[:colon], hostPort[colon+1:]
	}
	return strings.TrimSuffix(strings.ToLower(host), "."), port
}
