package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// scenario is one situation that the operator is put into.
type scenario struct {
	name  string
	title func(options) string
	run   func(context.Context, *bench) (Scenario, error)
}

// scenarios are all there are, in the order in which they are run. The first are run only when
// they are asked for: some need a cluster with real nodes, or long. The last three build on each
// other.
func scenarios() []scenario {
	return []scenario{
		{"smoke", func(options) string { return "20 together, counts only" }, smoke},
		{"pods", func(options) string { return "real pods" }, pods},
		{"warm-pods", func(options) string { return "prepared instances on real pods" }, warmPods},
		{"warm-leaders", func(o options) string {
			return fmt.Sprintf("%d prepared instances that are taken over while leaders change", o.claims)
		}, warmLeaders},
		{"warm", func(options) string { return "prepared instances" }, warm},
		{"burst-100", func(options) string { return "100 started together" }, burst(100)},
		{"burst-500", func(options) string { return "500 started together" }, burst(500)},
		{"ends", func(options) string { return "one ended alone, and 100 together" }, aloneAndTogether},
		{"steady", func(o options) string {
			return fmt.Sprintf("%d per second for %s, none of which expires", o.rate, o.balance)
		}, atRate(func(options) time.Duration { return 0 })},
		{"balance", func(o options) string {
			return fmt.Sprintf("%d per second for %s, each living %s", o.rate, o.balance, o.lifetime)
		}, atRate(func(o options) time.Duration { return o.lifetime })},
		{"expiry", func(o options) string { return fmt.Sprintf("%d expiring in the same second", o.expiring) }, expiry},
		{"growth", func(o options) string { return fmt.Sprintf("growth to %d live instances", o.live) }, growth},
		{"restart", func(o options) string { return fmt.Sprintf("restart of the operator at %d live instances", o.live) }, restart},
		{"quiet", func(o options) string { return fmt.Sprintf("%s with %d live instances left alone", o.quiet, o.live) }, quiet},
	}
}

// firstUsual is the first scenario that is run without being asked for.
const firstUsual = "burst-100"

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

func choose(names string) ([]scenario, error) {
	all := scenarios()
	switch names {
	case "":
		return all[slices.IndexFunc(all, func(s scenario) bool { return s.name == firstUsual }):], nil
	case "none":
		return nil, nil
	}
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if !slices.Contains(scenarioNames(), name) {
			return nil, fmt.Errorf("no scenario %q: there are %s", name, strings.Join(scenarioNames(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(wanted, s.name) }), nil
}

// counted are the figures of one instance's life that do not depend on speed.
func counted(start, end Turn) []Figure {
	s, e := classify(start.Requests), classify(end.Requests)
	return []Figure{
		{Name: "writes from creation to Running", Unit: "for each instance, without events", Operator: s.writes, Target: atMost(12), Count: true},
		{Name: "writes of the status among them", Unit: "for each instance", Operator: s.status, Target: atMost(3), Count: true},
		{Name: "reads from creation to Running", Unit: "for each instance, without watches", Operator: s.reads, Target: atMost(0), Count: true},
		{Name: "writes from deletion to gone", Unit: "for each instance, without events", Operator: e.writes, Target: atMost(5), Count: true},
	}
}

// smoke counts requests with a handful of instances.
func smoke(ctx context.Context, b *bench) (Scenario, error) {
	start, end, err := startAndEnd(ctx, b, theOperator, "", 20)
	return Scenario{Figures: counted(start, end)}, err
}

// startAndEnd creates instances concurrently, waits until they run, deletes them concurrently
// and waits until they are gone.
func startAndEnd(ctx context.Context, b *bench, who, profile string, n int) (start, end Turn, err error) {
	start, r, err := b.turn(ctx, who, profile, func(ctx context.Context, r *batch) error { return r.start(ctx, n) })
	if err != nil {
		return start, end, err
	}
	end, err = b.clearTurn(ctx, who, r.lives)
	return start, end, err
}

func perInstance(t Turn, process string) float64 {
	return 1000 * t.CPU[process] / float64(t.Instances)
}

// atRate creates instances at a steady rate, while those created a lifetime ago expire.
func atRate(lifetime func(options) time.Duration) func(context.Context, *bench) (Scenario, error) {
	return func(ctx context.Context, b *bench) (Scenario, error) {
		var s Scenario
		by := map[string]Turn{}
		for _, who := range []string{theBare, theOperator} {
			t, r, err := b.turn(ctx, who, "rate", func(ctx context.Context, r *batch) error {
				if err := r.steadily(ctx, time.Second/time.Duration(r.rate), b.balance, lifetime(b.options)); err != nil {
					return err
				}
				return r.await(ctx, "Starting, or ended before", len(r.lives), reachedStartingOrEnd)
			})
			if err != nil {
				return s, err
			}
			by[who] = t
			if _, err := b.clearTurn(ctx, who, r.lives); err != nil {
				return s, err
			}
		}
		operator, bare := by[theOperator], by[theBare]
		s.Figures = append(s.Figures,
			compare("time to starting, p50", "ms", operator.Latency["starting"].P50, bare.Latency["starting"].P50, atMost(1.3)),
			compare("time to starting, p99", "ms", operator.Latency["starting"].P99, bare.Latency["starting"].P99, atMost(2)),
			compare("time to running, p50", "ms", operator.Latency["running"].P50, bare.Latency["running"].P50, nil),
			compare("time to running, p99", "ms", operator.Latency["running"].P99, bare.Latency["running"].P99, nil),
			compare("CPU of the API server", "cores", operator.CPU["kube-apiserver"]/operator.Seconds, bare.CPU["kube-apiserver"]/bare.Seconds, nil),
			Figure{Name: "CPU of the operator", Unit: "cores", Operator: round2(operator.CPU["operator"] / operator.Seconds)})
		return s, nil
	}
}

// steadily creates an instance at every pause for a while. What the operator ends by
// itself, the bare client ends at the same time. A lifetime of zero is longer than the
// round.
func (r *batch) steadily(ctx context.Context, pause, window, lifetime time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := long
	if lifetime > 0 {
		timeout = seconds(lifetime)
	}
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	end := time.NewTimer(window)
	defer end.Stop()
	var under sync.WaitGroup
	defer under.Wait()
	over := make(chan struct{})
	defer close(over)
	for {
		l := r.next(challengeName)
		under.Go(func() {
			if err := r.createOne(ctx, l, timeout); err != nil {
				cancel(err)
				return
			}
			if r.who == theBare && lifetime > 0 {
				under.Go(func() { r.expireAfter(l, lifetime, over) })
			}
		})
		r.show.say("%s: %d created, %d started, %d run, %d gone", r.who, len(r.lives), r.count(reachedStarting), r.count(reachedRunning), r.count(reachedGone))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end.C:
			return nil
		case <-ticker.C:
		}
	}
}

// expireAfter ends an instance of the bare client when its time is over, unless the
// round is over before. Its time begins when its start does.
func (r *batch) expireAfter(l *life, lifetime time.Duration, over <-chan struct{}) {
	i := r.bare.instance(l.namespace)
	select {
	case <-i.started:
	case <-over:
		return
	}
	timer := time.NewTimer(time.Until(i.since.Add(lifetime)))
	defer timer.Stop()
	select {
	case <-timer.C:
		r.bare.timeOutLater(i)
	case <-over:
	}
}

// long is the timeout of instances that do not expire while they are looked at.
const long = "12h"

// seconds writes a duration as spec.timeout takes it.
func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int(d.Seconds())) }
