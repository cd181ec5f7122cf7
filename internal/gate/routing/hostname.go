package routing

import "strings"

// Any is the host name of listeners and routes that name none.
const Any = ""

// matchHostname reports whether a pattern such as example.com, *.example.com or Any contains a host name.
// A wildcard stands for one or more labels.
func matchHostname(pattern, host string) bool {
	if pattern == Any || pattern == host {
		return true
	}
	suffix, wildcard := strings.CutPrefix(pattern, "*")
	return wildcard && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

// intersect returns the hosts that both patterns contain, as the more specific one of them. It reports false if there are none.
func intersect(a, b string) (string, bool) {
	switch {
	case a == Any:
		return b, true
	case b == Any, a == b:
		return a, true
	case matchHostname(a, strings.TrimPrefix(b, "*.")) && !strings.HasPrefix(b, "*."), wider(a, b):
		return b, true
	case matchHostname(b, strings.TrimPrefix(a, "*.")) && !strings.HasPrefix(a, "*."), wider(b, a):
		return a, true
	default:
		return "", false
	}
}

// wider reports whether one wildcard contains another, as *.com contains *.example.com.
func wider(outer, inner string) bool {
	return strings.HasPrefix(outer, "*.") && strings.HasPrefix(inner, "*.") && strings.HasSuffix(inner[1:], outer[1:])
}

// candidates calls yield with each pattern that may contain a host, the most specific one first, until yield returns false.
func candidates(host string, yield func(pattern string) bool) {
	if host != Any && !yield(host) {
		return
	}
	for rest := host; ; {
		dot := strings.IndexByte(rest, '.')
		if dot < 0 {
			break
		}
		if rest = rest[dot+1:]; !yield("*." + rest) {
			return
		}
	}
	yield(Any)
}
