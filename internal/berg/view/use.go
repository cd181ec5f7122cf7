package view

import (
	"time"

	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

const (
	// An instance is in use for useRecent after a request: a browser holds no connection.
	useRecent = 5 * time.Minute
	// A host of no instance is forgotten after forgetHosts: the gate may know a host before the page does.
	forgetHosts = 10 * time.Minute
)

// Use is how players have used an instance, by the replicas of the gate.
type Use struct {
	// Known: the gate serves it. Active: a connection is open, or was a moment ago.
	Known  bool `json:"-"`
	Active bool `json:"active"`
	// First is the first connection, zero if it is not known.
	First time.Time `json:"first,omitzero"`
	// Last is the last connection of an instance that is not active. Zero: none is known since Since, which is zero if none was ever made.
	Last  time.Time `json:"last,omitzero"`
	Since time.Time `json:"since,omitzero"`
}

// Words say how an instance was used. The time that follows them is Last or Since, if one is set.
func (u Use) Words() string {
	switch {
	case !u.Known:
		return ""
	case u.Active:
		return "in use"
	case !u.Last.IsZero():
		return "last used"
	case !u.Since.IsZero():
		return "not used since"
	default:
		return "never opened"
	}
}

// Uses are the answers of the gate, by the ID of a host. It is not safe for concurrent use.
type Uses struct {
	// since is when all connections are known from. Zero: no replica has answered yet.
	since time.Time
	// Complete is when all replicas answered last: earlier connections need not be asked for again.
	Complete time.Time
	hosts    map[string]hostUse
}

// hostUse is the use of a host that the gate serves.
type hostUse struct {
	first, last, reported time.Time
	open                  int64
}

// Find returns the use of an instance, by its hosts.
func (u *Uses) Find(r *Row, now time.Time) (found Use) {
	if u.since.IsZero() || r.State != Running {
		return Use{}
	}
	for _, service := range r.Services {
		host, known := u.hosts[gateadmin.ID(service.Hostname)]
		found.Known = found.Known || known
		found.Active = found.Active || host.open > 0 || known && now.Sub(host.last) < useRecent
		found.First = earlier(found.First, host.first)
		if host.last.After(found.Last) {
			found.Last = host.last
		}
	}
	if r.Created.Before(u.since) {
		found.First = time.Time{} // a replica that is gone may have served an earlier one
	}
	switch {
	case found.Active:
		found.Last = time.Time{}
	case found.Last.IsZero() && r.Created.Before(u.since):
		found.Since = u.since
	}
	return found
}

// earlier returns the earlier of two times that are set.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Merge adds the answers of replicas. complete: all have answered. Open connections are counted again from each set of answers.
// Times only grow more exact.
func (u *Uses) Merge(reports []gateadmin.Report, asked time.Time, complete bool) {
	if u.hosts == nil {
		u.hosts = map[string]hostUse{}
	}
	for id, host := range u.hosts {
		host.open = 0
		u.hosts[id] = host
	}
	latest := time.Time{}
	for _, report := range reports {
		if report.Since.After(latest) {
			latest = report.Since
		}
		for _, route := range report.Hosts {
			host := u.hosts[route.ID]
			host.reported = asked
			host.open += route.Open
			host.first = earlier(host.first, route.First)
			if route.Last.After(host.last) {
				host.last = route.Last
			}
			u.hosts[route.ID] = host
		}
	}
	if !complete {
		return
	}
	if u.Complete = asked; u.since.IsZero() {
		u.since = latest // what a replica before the youngest one has served is not known
	}
}

// Forget drops hosts that are of no known instance, and that the gate has not reported for a while.
func (u *Uses) Forget(known map[string]bool, now time.Time) {
	for id, host := range u.hosts {
		if !known[id] && now.Sub(host.reported) > forgetHosts {
			delete(u.hosts, id)
		}
	}
}
