package config

import "testing"

func TestMayUse(t *testing.T) {
	for name, tc := range map[string]struct {
		policy   RefPolicy
		from, of string
		want     bool
	}{
		"trusted":                  {RefTrustedNamespace, "berg", "b", true},
		"not trusted":              {RefTrustedNamespace, "a", "b", false},
		"not trusted, trusted one": {RefTrustedNamespace, "a", "berg", false},
		"not trusted, own":         {RefTrustedNamespace, "a", "a", true},
		"any":                      {RefAny, "a", "b", true},
		"the configured one":       {RefConfiguredNamespace, "a", "berg", true},
		"not the configured one":   {RefConfiguredNamespace, "a", "a", false},
		"the same":                 {RefSameNamespace, "a", "a", true},
		"not the same, configured": {RefSameNamespace, "a", "berg", false},
	} {
		if got := (Challenge{Namespace: "berg", RefPolicy: tc.policy}).MayUse(tc.from, tc.of); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
