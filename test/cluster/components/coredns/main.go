// Command coredns is CoreDNS with the plugins a cluster's DNS needs and no other: the rest of
// upstream's list (clouds, DNSSEC, tracing and more) would multiply the time of a cold build.
package main

import (
	"github.com/coredns/coredns/coremain"

	// Which plugins there are is decided here; their order is that of CoreDNS, in its dnsserver package.
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() { coremain.Run() }
