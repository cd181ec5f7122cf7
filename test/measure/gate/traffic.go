package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bergctf/berg-operator/test/measure/machine"
)

// path leads to the pod: through a Gateway, or without one.
type path struct {
	name, url string
	address   string // that is dialled
	host      string
}

func (b *bench) paths() []path {
	all := []path{{"bare", "http://" + b.pod + "/", b.pod, b.pod}}
	for _, s := range []*side{b.gate, b.traefik} {
		if s != nil {
			host := s.name + "." + domain
			all = append(all, path{s.name, "https://" + host + "/", fmt.Sprintf("127.0.0.1:%d", s.secure), host})
		}
	}
	return all
}

func (p path) newClient(connections int) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, p.address)
		},
		TLSClientConfig: clientTLS(p.host), MaxIdleConnsPerHost: connections, DisableCompression: true,
	}}
}

func ask(ctx context.Context, c *http.Client, url string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return n, err
}

// traffic compares requests per second, bytes per second and latency. The paths alternate.
func traffic(ctx context.Context, b *bench) ([]figure, error) {
	kinds := []struct {
		name, unit, per string
		take            func(context.Context, path, time.Duration) (float64, error)
	}{
		{"requests per second, 32 connections", "1/s", "request", func(ctx context.Context, p path, d time.Duration) (float64, error) {
			return rate(ctx, p, d, workers, "", func(int64) int64 { return 1 })
		}},
		{"new connections per second, 8 clients", "1/s", "connection", newConnections},
		{"download, 4 connections", "Gbit/s", "Gbit", func(ctx context.Context, p path, d time.Duration) (float64, error) {
			bits, err := rate(ctx, p, d, 4, "?n=4194304", func(n int64) int64 { return 8 * n })
			return bits / 1e9, err
		}},
		{"latency at 300 requests per second, p50", "ms", "", func(ctx context.Context, p path, d time.Duration) (float64, error) { return latency(ctx, p, d, 50) }},
		{"latency at 300 requests per second, p99", "ms", "", func(ctx context.Context, p path, d time.Duration) (float64, error) { return latency(ctx, p, d, 99) }},
	}
	results, costs := map[string]map[string][]float64{}, map[string]map[string][]float64{}
	for range b.rounds {
		for _, kind := range kinds {
			for _, p := range b.paths() {
				used, began := b.used(p), time.Now()
				value, err := kind.take(ctx, p, b.traffic)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", p.name, kind.name, err)
				}
				if results[kind.name] == nil {
					results[kind.name], costs[kind.name] = map[string][]float64{}, map[string][]float64{}
				}
				results[kind.name][p.name] = append(results[kind.name][p.name], value)
				costs[kind.name][p.name] = append(costs[kind.name][p.name], 1000*(b.used(p)-used)/(value*time.Since(began).Seconds()))
			}
		}
	}
	var all []figure
	for i, kind := range kinds {
		by := results[kind.name]
		f := figure{What: kind.name, Unit: kind.unit, Gate: median(by["gate"]), Traefik: median(by["traefik"]), Bare: median(by["bare"])}
		if latencies := 3; i < latencies {
			f = f.ratio("Traefik", f.Traefik, 1, false)
			cost := figure{What: "CPU time of the Gateway per " + kind.per, Unit: "ms", Gate: median(costs[kind.name]["gate"]), Traefik: median(costs[kind.name]["traefik"])}
			all = append(all, cost.ratio("Traefik", cost.Traefik, 1, true))
		} else if f.Traefik > f.Bare {
			f.Limit, f.Value, f.Of, f.AtMost = 1, (f.Gate-f.Bare)/(f.Traefik-f.Bare), "added latency, ratio to Traefik", true
		}
		all = append(all, f)
	}
	return all, nil
}

// used is the CPU time in seconds that a path's Gateway has taken so far. Other programs on the machine change it less than what is served in
// a second.
func (b *bench) used(p path) float64 {
	for _, s := range []*side{b.gate, b.traefik} {
		if s != nil && s.name == p.name {
			return machine.CPU(s.process.Process.Pid)
		}
	}
	return 0
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// rate asks again and again, and returns how much came in a second.
func rate(ctx context.Context, p path, duration time.Duration, connections int, query string, amount func(int64) int64) (float64, error) {
	c := p.newClient(connections)
	defer c.CloseIdleConnections()
	if err := inParallel(connections, connections, func(int) error { _, err := ask(ctx, c, p.url); return err }); err != nil {
		return 0, err
	}
	var sum atomic.Int64
	began := time.Now()
	err := inParallel(connections, connections, func(int) error {
		for time.Since(began) < duration {
			n, err := ask(ctx, c, p.url+query)
			if err != nil {
				return err
			}
			sum.Add(amount(n))
		}
		return nil
	})
	return float64(sum.Load()) / time.Since(began).Seconds(), err
}

// newConnections makes a connection for each request.
func newConnections(ctx context.Context, p path, duration time.Duration) (float64, error) {
	c := p.newClient(1)
	c.Transport.(*http.Transport).DisableKeepAlives = true
	var sum atomic.Int64
	began := time.Now()
	err := inParallel(8, 8, func(int) error {
		for time.Since(began) < duration {
			if _, err := ask(ctx, c, p.url); err != nil {
				return err
			}
			sum.Add(1)
		}
		return nil
	})
	return float64(sum.Load()) / time.Since(began).Seconds(), err
}

const interval = time.Second / 300

// latency asks at a steady rate, whether earlier requests were answered or not.
func latency(ctx context.Context, p path, duration time.Duration, percent int) (float64, error) {
	c := p.newClient(workers)
	defer c.CloseIdleConnections()
	if err := inParallel(8, 8, func(int) error { _, err := ask(ctx, c, p.url); return err }); err != nil {
		return 0, err
	}
	took, err := steadily(ctx, c, p.url, duration, interval)
	return rank(took, percent), err
}

func steadily(ctx context.Context, c *http.Client, url string, duration, pause time.Duration) (took []time.Duration, err error) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, 4*workers) // a machine that stalls must not make one address exceed its connections
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for range int(duration / pause) {
		<-ticker.C
		asking.Go(func() {
			began := time.Now()
			slots <- struct{}{}
			_, failed := ask(ctx, c, url)
			<-slots
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(began))
			if failed != nil {
				err = failed
			}
		})
	}
	asking.Wait()
	return took, err
}
