package routing

import (
	"net/http"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// HeaderChange changes the headers of a request or of an answer.
type HeaderChange struct {
	Set, Add http.Header
	Remove   []string
}

// Apply changes the headers. Host is no header of Go's requests, so callers handle it.
func (c HeaderChange) Apply(header http.Header) {
	for _, name := range c.Remove {
		header.Del(name)
	}
	for name, values := range c.Set {
		header[name] = append([]string(nil), values...)
	}
	for name, values := range c.Add {
		header[name] = append(header[name], values...)
	}
}

func headerChange(modifier *gatewayv1.HTTPHeaderFilter) HeaderChange {
	change := HeaderChange{Set: http.Header{}, Add: http.Header{}, Remove: modifier.Remove}
	for _, header := range modifier.Set {
		change.Set.Set(string(header.Name), header.Value)
	}
	for _, header := range modifier.Add {
		change.Add.Add(string(header.Name), header.Value)
	}
	return change
}
