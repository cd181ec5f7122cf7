package livepage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

const (
	useInterval = 15 * time.Second
	useTimeout  = 5 * time.Second
	// maxReplicas of the gate are asked.
	maxReplicas = 32
)

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
		report, failed := gateadmin.AskUsage(ctx, g.http, net.JoinHostPort(replica, port), after)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		reports = append(reports, report)
	}
	return reports, err
}

// follow asks until ctx is done, and hands over the answers. A cluster without the gate has no such name. A failure is not an
// error of the page: the next question asks for the same time again.
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
