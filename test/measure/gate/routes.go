package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	// usable is the limit of the time until a new route is served, in milliseconds, and usableRush that of the last one of a rush.
	usable, usableRush = 50, 250
	// peerRoutes is the number of routes up to which Traefik is measured: it serves some five more in a second.
	peerRoutes, peerAttempts, peerRush = 1000, 20, 100
	poll                               = time.Millisecond
)

// routes measures the time from the answer to a request that created a route until its host is served.
func routes(ctx context.Context, b *bench) (all []figure, err error) {
	seen, stop, err := b.watchRoutes(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	written := 0
	for text := range strings.SplitSeq(b.routes, ",") {
		count, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("--routes: %w", err)
		}
		if err := b.fill(ctx, b.gate, written, count); err != nil {
			return all, err
		}
		written = max(written, count)
		f := figure{What: fmt.Sprintf("new route is served, p99, with %d routes", count), Unit: "ms"}
		took, bare, err := b.writeAlone(ctx, b.gate, seen, b.attempts)
		if err != nil {
			return all, err
		}
		f.Gate, f.Bare = rank(took, 99), rank(bare, 99)
		if b.traefik != nil && count == 0 {
			if took, _, err = b.writeAlone(ctx, b.traefik, seen, peerAttempts); err != nil {
				return all, err
			}
			f.Traefik = rank(took, 99)
		}
		all = append(all, f.atMost(usable))
	}
	f := figure{What: fmt.Sprintf("last of %d routes written together is served", b.rush), Unit: "ms"}
	if f.Gate, f.Bare, err = b.writeTogether(ctx, b.gate, seen, b.rush); err != nil {
		return all, err
	}
	all = append(all, f.atMost(usableRush))
	if b.traefik != nil {
		f := figure{What: fmt.Sprintf("last of %d routes written together is served", peerRush), Unit: "ms"}
		if f.Gate, f.Bare, err = b.writeTogether(ctx, b.gate, seen, peerRush); err != nil {
			return all, err
		}
		if f.Traefik, _, err = b.writeTogether(ctx, b.traefik, seen, peerRush); err != nil {
			return all, err
		}
		all = append(all, f.atMost(usableRush))
	}
	return all, nil
}

// observations are the times at which the watch of a bare client saw routes.
type observations struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (s *observations) of(name string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := s.at[name]
	return at, found
}

// watchRoutes notes when a bare client sees each route. A watch that ends begins again.
func (b *bench) watchRoutes(ctx context.Context) (*observations, func(), error) {
	ctx, stop := context.WithCancel(ctx)
	source, err := cache.New(b.config, cache.Options{Scheme: b.client.Scheme(), DefaultNamespaces: map[string]cache.Config{arena: {}}})
	if err != nil {
		return nil, stop, err
	}
	informer, err := source.GetInformer(ctx, &gatewayv1.HTTPRoute{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, stop, err
	}
	seen := &observations{at: map[string]time.Time{}}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		if route, ok := object.(*gatewayv1.HTTPRoute); ok {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			seen.at[route.Name] = time.Now()
		}
	}}); err != nil {
		return nil, stop, err
	}
	go func() { _ = source.Start(ctx) }()
	if !source.WaitForCacheSync(ctx) {
		return nil, stop, context.Cause(ctx)
	}
	return seen, stop, nil
}

// fill writes routes until there are so many, and waits until the last one has its status.
func (b *bench) fill(ctx context.Context, s *side, from, to int) error {
	if to <= from {
		return nil
	}
	name := func(i int) string { return fmt.Sprintf("%s-fill-%d", s.name, i) }
	if err := inParallel(to-from, workers, func(i int) error { return b.client.Create(ctx, s.newRoute(name(from+i), "pod")) }); err != nil {
		return err
	}
	return inParallel(to-from, workers, func(i int) error {
		for route := s.newRoute(name(from+i), "pod"); len(route.Status.Parents) == 0; {
			if err := b.client.Get(ctx, client.ObjectKeyFromObject(route), route); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeAlone writes one route after the other, each when the former is served and removed.
func (b *bench) writeAlone(ctx context.Context, s *side, seen *observations, n int) (took, bare []time.Duration, err error) {
	for i := range n {
		name := fmt.Sprintf("%s-alone-%d-%d", s.name, time.Now().UnixNano(), i)
		route := s.newRoute(name, "pod")
		if err := b.client.Create(ctx, route); err != nil {
			return nil, nil, err
		}
		written := time.Now()
		for !s.answers(ctx, name) {
			if time.Since(written) > time.Minute || ctx.Err() != nil {
				return nil, nil, fmt.Errorf("%s does not serve %s", s.name, name)
			}
			<-time.After(poll)
		}
		took = append(took, time.Since(written))
		if at, found := seen.of(name); found {
			bare = append(bare, max(at.Sub(written), 0))
		}
		if err := b.client.Delete(ctx, route); err != nil {
			return nil, nil, err
		}
	}
	return took, bare, nil
}

// writeTogether writes routes concurrently, and returns how long after the last answer the last one was served, and was seen by the bare client.
func (b *bench) writeTogether(ctx context.Context, s *side, seen *observations, n int) (served, bare float64, err error) {
	round := time.Now().UnixNano()
	name := func(i int) string { return fmt.Sprintf("%s-rush-%d-%d", s.name, round, i) }
	if err := inParallel(n, workers, func(i int) error { return b.client.Create(ctx, s.newRoute(name(i), "pod")) }); err != nil {
		return 0, 0, err
	}
	written := time.Now()
	// One client alone would need longer for its requests than the gate for the routes.
	err = inParallel(n, workers, func(i int) error {
		for !s.answers(ctx, name(i)) {
			if time.Since(written) > 5*time.Minute || ctx.Err() != nil {
				return fmt.Errorf("%s does not serve %s", s.name, name(i))
			}
			<-time.After(poll)
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	served = milliseconds(time.Since(written))
	for i := range n {
		at, found := seen.of(name(i))
		for ; !found && time.Since(written) < time.Minute; at, found = seen.of(name(i)) {
			<-time.After(poll)
		}
		bare = max(bare, milliseconds(at.Sub(written)))
	}
	return served, bare, inParallel(n, workers, func(i int) error { return b.client.Delete(ctx, s.newRoute(name(i), "pod")) })
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// rank returns a percentile in milliseconds.
func rank(all []time.Duration, percent int) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return milliseconds(sorted[(len(sorted)-1)*percent/100])
}
