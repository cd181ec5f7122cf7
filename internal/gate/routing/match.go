package routing

import (
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

// compileMatch keeps the first of several values for one header or parameter, as the Gateway API demands. A prefix has no slash
// at its end: it ends at a slash of the path.
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
