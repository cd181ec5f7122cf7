package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"
)

// The Corefile of a cluster may use these; "prometheus" and "transfer" come in with others.
func TestDirectivesOfACluster(t *testing.T) {
	registered := caddy.ListPlugins()["others"]
	for _, directive := range strings.Fields(
		"cache errors forward health kubernetes loadbalance log loop prometheus ready reload") {
		if !slices.Contains(registered, "dns."+directive) {
			t.Errorf("directive %q is missing from %v", directive, registered)
		}
	}
}
