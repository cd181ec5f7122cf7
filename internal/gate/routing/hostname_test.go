package routing

import (
	"slices"
	"strings"
	"testing"
)

func TestHostnames(t *testing.T) {
	for name, c := range map[string]struct {
		a, b, both string
		shared     bool
	}{
		"the same":                    {"a.example", "a.example", "a.example", true},
		"others":                      {"a.example", "b.example", "", false},
		"any and a name":              {Any, "a.example", "a.example", true},
		"a wildcard and a name":       {"*.example", "a.example", "a.example", true},
		"several labels":              {"*.example", "a.b.example", "a.b.example", true},
		"the parent of a wildcard":    {"*.example", "example", "", false},
		"a narrower wildcard":         {"*.example", "*.b.example", "*.b.example", true},
		"a part of a label":           {"*.example", "*.bexample", "", false},
		"a name that ends like it":    {"*.example", "bexample", "", false},
		"wildcards that share none":   {"*.a.example", "*.b.example", "", false},
		"a name above a wildcard":     {"*.b.example", "b.example", "", false},
		"any and a wildcard":          {Any, "*.example", "*.example", true},
		"a wildcard and its own text": {"*.example", "*.example", "*.example", true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
				if both, shared := intersect(order[0], order[1]); both != c.both || shared != c.shared {
					t.Errorf("%q and %q: %q, %v; want %q, %v", order[0], order[1], both, shared, c.both, c.shared)
				}
			}
		})
	}
	var tried []string
	candidates("a.b.example", func(pattern string) bool { tried = append(tried, pattern); return true })
	if want := []string{"a.b.example", "*.b.example", "*.example", Any}; !slices.Equal(tried, want) {
		t.Errorf("%q, want %q", tried, want)
	}
	for text, want := range map[string][2]string{
		"A.Example.:443": {"a.example", "443"}, "a.example": {"a.example", ""}, "[::1]:8080": {"[::1]", "8080"}, "[::1]": {"[::1]", ""}, "": {"", ""}, ":1": {"", "1"},
	} {
		if host, port := SplitHost(text); host != want[0] || port != want[1] {
			t.Errorf("%q: %q and %q", text, host, port)
		}
	}
}

func FuzzHostnames(f *testing.F) {
	f.Add("*.example", "a.example", "a.example:1")
	f.Fuzz(func(t *testing.T, a, b, request string) {
		both, shared := intersect(a, b)
		if reverse, again := intersect(b, a); shared != again || both != reverse {
			t.Errorf("%q and %q share %q %v, reversed %q %v", a, b, both, shared, reverse, again)
		}
		host, _ := SplitHost(request)
		found := false
		candidates(host, func(pattern string) bool { found = found || pattern == Any; return true })
		if !found {
			t.Errorf("%q: listeners without a host name were not tried", host)
		}
	})
}

func FuzzCandidates(f *testing.F) {
	for _, seed := range [][2]string{{"*.example", "one.example"}, {"one.example", "one.example"}, {"", "one"}, {"*.a.b", "*.b"}, {"*.", "."}, {"a..b", "*..b"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, host string) {
		name, _ := SplitHost(host)
		if again, _ := SplitHost(name); !strings.Contains(name, ":") && !strings.HasSuffix(name, ".") && again != name {
			t.Errorf("SplitHost: %q becomes %q, then %q", host, name, again)
		}
		found := false
		candidates(name, func(candidate string) bool {
			found = found || candidate == pattern
			return true
		})
		// The API server takes no other names and patterns.
		label := func(text string) bool {
			return text != "" && !strings.Contains("."+text+".", "..") && !strings.Contains(text, "*")
		}
		if !label(name) || pattern != Any && !label(strings.TrimPrefix(pattern, "*.")) {
			return
		}
		if found != matchHostname(pattern, name) {
			t.Errorf("%q of %q: a candidate %v, a match %v", pattern, name, found, !found)
		}
	})
}
