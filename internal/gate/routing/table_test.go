package routing

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// A tenant may attach a route with 128 rules to 32 Gateways with 64 listeners.
func TestARouteWithManyRulesAndHostsTakesLittleMemory(t *testing.T) {
	const gateways, listeners, hosts, rules, most = 32, 64, 16, 128, 16 << 20
	route := &Route{}
	for n := range rules {
		route.Rules = append(route.Rules, &Rule{Match: Match{path: fmt.Sprint("/", n)}})
	}
	for g := range gateways {
		parent := Parent{}
		for l := range listeners {
			attachment := Attachment{Listener: &Listener{Port: Port{Number: 443}, Valid: true}}
			for range hosts {
				attachment.Hosts = append(attachment.Hosts, fmt.Sprintf("l%d.g%d.example", l, g))
			}
			parent.Attachments = append(parent.Attachments, attachment)
		}
		route.Parents = append(route.Parents, parent)
	}
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, table := inUse(), NewTable()
	begun := time.Now()
	table.Set(Key{HTTPRoute, "tenant", "a"}, route)
	if took := time.Since(begun); took > time.Second {
		t.Errorf("players wait for %s while it is set", took)
	}
	if taken := int64(inUse()) - int64(before); taken > most {
		t.Errorf("%d bytes are kept of one route", taken)
	}
	if got := len(table.placed[Key{HTTPRoute, "tenant", "a"}]); got != gateways*listeners {
		t.Errorf("the route has %d hosts", got)
	}
	runtime.KeepAlive(table)
}
