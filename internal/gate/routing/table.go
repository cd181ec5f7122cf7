package routing

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Key names a route: kind, namespace and name.
type Key struct{ Kind, Namespace, Name string }

// Table says which backend serves a host at a port. It is safe for concurrent use; a change of one route costs the hosts of that route.
type Table struct {
	mu    sync.RWMutex
	ports map[Port]*port
	// placed has the hosts at which each route stands, so that a change removes it there.
	placed map[Key][]place
	// changed is closed at the next change.
	changed chan struct{}
}

// place is a host at a port.
type place struct {
	port Port
	host string
}

type port struct {
	hosts     map[string]*host
	listeners []*Listener
}

// host has everything that is served under one pattern of host names.
type host struct {
	http []attached
	// rules are those of all routes, in the order in which they are tried.
	rules []*Rule
	tls   []attached // in order: the first one is served
}

// attached is a route of a host. There is nearly always one: maps would take most of the memory of a table.
type attached struct {
	key     Key
	created time.Time
	rules   []*Rule
	targets []Backend
}

// NewTable returns an empty Table.
func NewTable() *Table {
	return &Table{ports: map[Port]*port{}, placed: map[Key][]place{}, changed: make(chan struct{})}
}

// Changed returns a channel that is closed at the next change.
func (t *Table) Changed() <-chan struct{} {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.changed
}

// announce wakes those that wait for a change.
func (t *Table) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// SetListeners replaces the listeners. Routes keep their hosts until they are set again.
func (t *Table) SetListeners(listeners []*Listener) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.announce()
	for _, p := range t.ports {
		p.listeners = nil
	}
	for _, listener := range listeners {
		if listener.Valid {
			p := t.port(listener.Port)
			p.listeners = append(p.listeners, listener)
		}
	}
}

func (t *Table) port(number Port) *port {
	if t.ports[number] == nil {
		t.ports[number] = &port{hosts: map[string]*host{}}
	}
	return t.ports[number]
}

// Set replaces what a route serves. Removal and addition are one change under the lock: no request between both finds the host
// without a route.
func (t *Table) Set(key Key, route *Route) {
	slices.SortFunc(route.Rules, compareRules)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.announce()
	t.remove(key)
	known := map[place]bool{}
	for _, parent := range route.Parents {
		for _, attachment := range parent.Attachments {
			if !attachment.Listener.Valid {
				continue
			}
			for _, name := range attachment.Hosts {
				if spot := (place{attachment.Listener.Port, name}); !known[spot] {
					known[spot] = true
					t.add(key, spot, route)
				}
			}
		}
	}
}

// Delete removes a route.
func (t *Table) Delete(key Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(key)
}

// add adds a route that the host does not have. The order of a host is computed with each change, and requests only read it.
func (t *Table) add(key Key, spot place, route *Route) {
	t.placed[key] = append(t.placed[key], spot)
	hosts := t.port(spot.port).hosts
	h := hosts[spot.host]
	if h == nil {
		h = &host{}
		hosts[spot.host] = h
	}
	if key.Kind == TLSRoute {
		h.tls = append(h.tls, attached{key: key, created: route.Created, targets: route.Targets})
	} else {
		h.http = append(h.http, attached{key: key, rules: route.Rules})
	}
	h.order()
}

// remove leaves no empty host behind, and may be repeated.
func (t *Table) remove(key Key) {
	removed := func(a attached) bool { return a.key == key }
	for _, spot := range t.placed[key] {
		hosts := t.ports[spot.port].hosts
		h := hosts[spot.host]
		h.http, h.tls = slices.DeleteFunc(h.http, removed), slices.DeleteFunc(h.tls, removed)
		if len(h.http) == 0 && len(h.tls) == 0 {
			delete(hosts, spot.host)
			continue
		}
		h.order()
	}
	delete(t.placed, key)
}

// order sorts what routes of one host share. It makes a new slice of rules, because readers keep the old one. It sorts when a
// route changes, and not for each request. The rules of a route alone are sorted, and its hosts share them: a tenant may have
// thousands of hosts with a hundred rules.
func (h *host) order() {
	if len(h.http) == 1 {
		h.rules = h.http[0].rules
	} else {
		var rules []*Rule
		for _, route := range h.http {
			rules = append(rules, route.rules...)
		}
		slices.SortFunc(rules, compareRules)
		h.rules = rules
	}
	slices.SortFunc(h.tls, func(a, b attached) int { return cmp.Or(a.created.Compare(b.created), compareKeys(a.key, b.key)) })
}

// Rule returns the rule that serves a request at a port. known reports whether a route has the host at all.
func (t *Table) Rule(number Port, req *http.Request) (rule *Rule, known bool) {
	name, _ := SplitHost(req.Host)
	t.mu.RLock()
	var rules []*Rule
	if p := t.ports[number]; p != nil {
		candidates(name, func(pattern string) bool {
			if h := p.hosts[pattern]; h != nil && len(h.http) > 0 {
				rules, known = h.rules, true
			}
			return !known
		})
	}
	t.mu.RUnlock()
	for i := range rules {
		if rules[i].Match.matches(req) {
			return rules[i], true
		}
	}
	return nil, known
}

// Targets returns the backends of the TLSRoute that serves a server name at a port.
func (t *Table) Targets(number Port, serverName string) (targets []Backend, known bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if p := t.ports[number]; p != nil {
		candidates(serverName, func(pattern string) bool {
			if h := p.hosts[pattern]; h != nil && len(h.tls) > 0 {
				targets, known = h.tls[0].targets, true
			}
			return !known
		})
	}
	return targets, known
}

// Listener returns the listener with the most specific hostname for a server name. It returns nil if no listener has it.
func (t *Table) Listener(number Port, serverName string) *Listener {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var found *Listener
	if p := t.ports[number]; p != nil {
		for _, listener := range p.listeners {
			if matchHostname(listener.Hostname, serverName) && (found == nil || len(listener.Hostname) > len(found.Hostname)) {
				found = listener
			}
		}
	}
	return found
}

// Backends returns the backends to which a first request for / or a connection of TLS with a host name goes, at all ports. known reports
// whether there is a route. With a namespace, only routes to pods of that namespace count: a route of others may have the same host, or
// contain it.
func (t *Table) Backends(name, namespace string) (backends []Backend, known bool) {
	foreign := func(b Backend) bool { return namespace != "" && b.Service.Namespace != namespace }
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.ports {
		candidates(name, func(pattern string) bool {
			h := p.hosts[pattern]
			if h == nil {
				return true
			}
			for _, first := range h.first() {
				if !slices.ContainsFunc(first, foreign) && (namespace == "" || len(first) > 0) {
					backends, known = append(backends, first...), true
				}
			}
			return false
		})
	}
	return backends, known
}

// first returns the backends of the rule that serves a request for /, and those of the TLSRoute that is served.
func (h *host) first() (all [][]Backend) {
	request := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{}}
	if n := slices.IndexFunc(h.rules, func(r *Rule) bool { return r.Match.matches(request) }); n >= 0 {
		all = append(all, h.rules[n].Backends)
	}
	if len(h.tls) > 0 {
		all = append(all, h.tls[0].targets)
	}
	return all
}

// Certificate chooses the certificate of a listener for a client.
func (l *Listener) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	for _, certificate := range l.Certificates {
		if hello.SupportsCertificate(certificate) == nil {
			return certificate, nil
		}
	}
	return l.Certificates[0], nil
}

// Plain reports whether a port serves HTTP without TLS. A port without listeners does, too: it answers that a host is served by HTTPS, or
// that it is not served.
func (t *Table) Plain(number Port) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p := t.ports[number]
	return p == nil || len(p.listeners) == 0 || p.listeners[0].Mode == HTTP
}

// Secure reports whether an HTTPS listener serves a host.
func (t *Table) Secure(name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.ports {
		if len(p.listeners) == 0 || p.listeners[0].Mode == HTTP {
			continue
		}
		served := false
		candidates(name, func(pattern string) bool {
			h := p.hosts[pattern]
			served = h != nil && len(h.http) > 0
			return !served
		})
		if served {
			return true
		}
	}
	return false
}

// compareRules orders rules as the Gateway API wants: an exact path, the longer path, a method, more headers, more parameters, the
// older route, the name of the route, and the order within it.
func compareRules(a, b *Rule) int {
	rank := func(set bool) int {
		if set {
			return 0
		}
		return 1
	}
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
