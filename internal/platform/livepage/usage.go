package livepage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/utils/clock"

	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

const (
	useInterval = 15 * time.Second
	useTimeout  = 5 * time.Second
	// An instance is in use for useRecent after a request: a browser holds no connection.
	useRecent = 5 * time.Minute
	// A host of no instance is forgotten after forgetHosts: the gate may know a host before the page does.
	forgetHosts = 10 * time.Minute
	// maxReplicas of the gate are asked, and maxUseReport bytes are read of each.
	maxReplicas, maxUseReport = 32, 8 << 20
)

// uses are the answers of the gate, by the ID of a host.
type uses struct {
	// since is when all connections are known from. Zero: no replica has answered yet.
	since time.Time
	// complete is when all replicas answered last: earlier connections need not be asked for again.
	complete time.Time
	hosts    map[string]hostUse
}

// hostUse is the use of a host that the gate serves.
type hostUse struct {
	last, reported time.Time
	open           int64
}

// find returns the use of an instance, by its hosts.
func (u *uses) find(r *view.Row, now time.Time) (use Use) {
	if u.since.IsZero() || r.State != view.Running {
		return Use{}
	}
	for _, service := range r.Services {
		host, found := u.hosts[gateadmin.ID(service.Hostname)]
		use.Known = use.Known || found
		use.Active = use.Active || host.open > 0 || now.Sub(host.last) < useRecent
		if host.last.After(use.Last) {
			use.Last = host.last
		}
	}
	switch {
	case use.Active:
		use.Last = time.Time{}
	case use.Last.IsZero() && r.Created.Before(u.since):
		use.Since = u.since
	}
	return use
}

// merge adds the answers of replicas. complete: all have answered.
func (u *uses) merge(reports []gateadmin.Report, asked time.Time, complete bool) {
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
			if route.Last.After(host.last) {
				host.last = route.Last
			}
			u.hosts[route.ID] = host
		}
	}
	if !complete {
		return
	}
	if u.complete = asked; u.since.IsZero() {
		u.since = latest // what a replica before the youngest one has served is not known
	}
}

// forget drops hosts that are of no known instance, and that the gate has not reported for a while.
func (u *uses) forget(known map[string]bool, now time.Time) {
	for id, host := range u.hosts {
		if !known[id] && now.Sub(host.reported) > forgetHosts {
			delete(u.hosts, id)
		}
	}
}

// gateClient asks the replicas of the gate.
type gateClient struct {
	// address is a name that resolves to all replicas, with the admin port.
	address string
	lookup  func(ctx context.Context, host string) ([]string, error)
	http    *http.Client
}

func newGateClient(address string) *gateClient {
	return &gateClient{
		address: address, lookup: net.DefaultResolver.LookupHost,
		http: &http.Client{Timeout: useTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// ask returns the answers of the replicas about what was used after a time. An error says why one is missing.
func (g *gateClient) ask(ctx context.Context, after time.Time) (reports []gateadmin.Report, err error) {
	host, port, err := net.SplitHostPort(g.address)
	if err != nil {
		return nil, err
	}
	looking, cancel := context.WithTimeout(ctx, useTimeout)
	defer cancel()
	replicas, err := g.lookup(looking, host)
	if err != nil {
		return nil, err
	}
	if len(replicas) > maxReplicas {
		replicas, err = replicas[:maxReplicas], fmt.Errorf("%s has more than %d addresses", host, maxReplicas)
	}
	for _, replica := range replicas {
		report, failed := g.askReplica(ctx, net.JoinHostPort(replica, port), after)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		reports = append(reports, report)
	}
	return reports, err
}

func (g *gateClient) askReplica(ctx context.Context, replica string, after time.Time) (report gateadmin.Report, err error) {
	query := url.Values{"after": {strconv.FormatInt(max(0, after.Unix()), 10)}}
	to := url.URL{Scheme: "http", Host: replica, Path: "/usage", RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return report, err
	}
	answer, err := g.http.Do(req)
	if err != nil {
		return report, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return report, fmt.Errorf("%s answers with status %d", replica, answer.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxUseReport)).Decode(&report); err != nil {
		return report, fmt.Errorf("%s: its answer is not JSON: %w", replica, err)
	}
	return report, nil
}

// follow asks until ctx is done, and hands over the answers. A cluster without the gate has no such name.
func (g *gateClient) follow(ctx context.Context, ticks clock.WithTicker, after func() time.Time, see func(reports []gateadmin.Report, asked time.Time, complete bool)) {
	tick := ticks.NewTicker(useInterval)
	defer tick.Stop()
	for {
		asked := ticks.Now()
		reports, err := g.ask(ctx, after())
		see(reports, asked, err == nil && len(reports) > 0)
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
}
