package routing

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Match is what a request must have.
type Match struct {
	path    string
	exact   bool
	method  string
	headers []pair
	query   []pair
}

type pair struct{ name, value string }

func compileMatch(spec *gatewayv1.HTTPRouteMatch) (Match, error) {
	match := Match{path: "/"}
	if spec.Path != nil {
		match.path = ptr.Deref(spec.Path.Value, "/")
		switch kind := ptr.Deref(spec.Path.Type, gatewayv1.PathMatchPathPrefix); kind {
		case gatewayv1.PathMatchExact:
			match.exact = true
		case gatewayv1.PathMatchPathPrefix:
			if match.path != "/" {
				match.path = strings.TrimSuffix(match.path, "/")
			}
		case gatewayv1.PathMatchRegularExpression:
			return match, fmt.Errorf("path.type %s is not supported: use Exact or PathPrefix", kind)
		}
	}
	match.method = string(ptr.Deref(spec.Method, ""))
	for _, header := range spec.Headers {
		if kind := ptr.Deref(header.Type, gatewayv1.HeaderMatchExact); kind != gatewayv1.HeaderMatchExact {
			return match, fmt.Errorf("headers: type %s is not supported: use Exact", kind)
		}
		name := http.CanonicalHeaderKey(string(header.Name))
		if !slices.ContainsFunc(match.headers, func(p pair) bool { return p.name == name }) {
			match.headers = append(match.headers, pair{name, header.Value})
		}
	}
	for _, param := range spec.QueryParams {
		if kind := ptr.Deref(param.Type, gatewayv1.QueryParamMatchExact); kind != gatewayv1.QueryParamMatchExact {
			return match, fmt.Errorf("queryParams: type %s is not supported: use Exact", kind)
		}
		if !slices.ContainsFunc(match.query, func(p pair) bool { return p.name == string(param.Name) }) {
			match.query = append(match.query, pair{string(param.Name), param.Value})
		}
	}
	return match, nil
}

// matches reports whether a request has all that the match names.
func (m *Match) matches(req *http.Request) bool {
	path := req.URL.Path
	switch {
	case m.exact && path != m.path:
		return false
	case !m.exact && m.path != "/" && path != m.path && !strings.HasPrefix(path, m.path+"/"):
		return false
	case m.method != "" && m.method != req.Method:
		return false
	}
	for _, header := range m.headers {
		values := req.Header.Values(header.name)
		if header.name == "Host" {
			values = []string{req.Host}
		}
		if len(values) == 0 || strings.Join(values, ",") != header.value {
			return false
		}
	}
	if len(m.query) == 0 {
		return true
	}
	query := req.URL.Query()
	return !slices.ContainsFunc(m.query, func(p pair) bool { return !query.Has(p.name) || query.Get(p.name) != p.value })
}

// compareRules orders rules as the Gateway API wants: an exact path, the longer path, a method, more headers, more parameters, the
// older route, the name of the route, and the order within it.
func compareRules(a, b Rule) int {
	rank := func(set bool) int { return map[bool]int{true: 0, false: 1}[set] }
	return cmp.Or(
		rank(a.Match.exact)-rank(b.Match.exact),
		len(b.Match.path)-len(a.Match.path),
		rank(a.Match.method != "")-rank(b.Match.method != ""),
		len(b.Match.headers)-len(a.Match.headers),
		len(b.Match.query)-len(a.Match.query),
		a.order.created.Compare(b.order.created),
		cmp.Compare(a.order.namespace, b.order.namespace),
		cmp.Compare(a.order.name, b.order.name),
		a.order.index-b.order.index,
	)
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
