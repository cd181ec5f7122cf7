package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// step is after how many new instances their size is looked at.
	step = 1000
	// underWay is how many instances are being started at a time while others are
	// added: the next one comes when one runs.
	underWay = 64
)

// growTo adds instances until there are n, and calls grown after every step.
func (r *batch) growTo(ctx context.Context, n int, grown func(lives []*life)) error {
	begin := len(r.lives)
	for len(r.lives) < n || r.count(reachedRunning) < n {
		running := r.count(reachedRunning)
		more := min(n-len(r.lives), underWay-(len(r.lives)-running))
		if more > 0 {
			if err := r.create(ctx, more, long); err != nil {
				return err
			}
		}
		if grown != nil && running >= begin+step {
			grown(r.lives[begin : begin+step])
			begin += step
		}
		if err := r.await(ctx, "Running", min(running+1, n), reachedRunning); err != nil {
			return err
		}
	}
	if grown != nil && len(r.lives) > begin {
		grown(r.lives[begin:])
	}
	return nil
}

// growth adds instances until there are as many as asked for, and leaves them for the
// scenarios that follow.
func growth(ctx context.Context, b *bench) (Scenario, error) {
	var s Scenario
	began := time.Now()
	t, r, err := b.turn(ctx, theOperator, "growth", func(ctx context.Context, r *batch) error {
		return r.growTo(ctx, b.live, func(lives []*life) {
			part := batch{bench: b, lives: lives}
			q := quantiles(part.starting())
			s.Growth = append(s.Growth, Size{
				Instances:   r.count(reachedRunning),
				Minutes:     round2(time.Since(began).Minutes()),
				StartingP50: q.P50, StartingP99: q.P99,
				OperatorMiB: b.ours.memory("operator"), APIServerMiB: b.ours.memory("kube-apiserver"), EtcdMiB: b.ours.memory("etcd"),
				EtcdDatabaseMB: b.databaseSize(),
			})
		})
	})
	if err != nil {
		return s, err
	}
	b.grown = r
	s.Turns = []Turn{t}
	s.Figures = append(counted(t, Turn{})[:3],
		Figure{Name: "time to starting, p50", Unit: "ms", Operator: t.Latency["starting"].P50},
		Figure{Name: "time to starting, p99", Unit: "ms", Operator: t.Latency["starting"].P99},
		Figure{Name: "instances that came to Running", Unit: "per second", Operator: round2(float64(b.live) / t.Seconds), HigherIsBetter: true},
		Figure{Name: "processor of the operator", Unit: "ms for each instance", Operator: round2(perInstance(t, "operator", true))})
	return s, nil
}

// ensureGrown grows to the live instances that a scenario needs, if no other has.
func (b *bench) ensureGrown(ctx context.Context) error {
	if b.grown != nil {
		return nil
	}
	_, err := growth(ctx, b)
	return err
}

func (b *bench) databaseSize() float64 {
	info, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(b.audit.path)), "etcd", "member", "snap", "db"))
	if err != nil {
		return 0
	}
	return round2(float64(info.Size()) / 1e6)
}

// restart ends the operator and starts it again.
func restart(ctx context.Context, b *bench) (Scenario, error) {
	var s Scenario
	if err := b.ensureGrown(ctx); err != nil {
		return s, err
	}
	if err := b.stopOperator(); err != nil {
		return s, err
	}
	begin, err := b.mark(ctx)
	if err != nil {
		return s, err
	}
	server := b.ours.cpu("kube-apiserver")
	if err := b.startOperator(ctx); err != nil {
		return s, err
	}
	ready, readyCPU := b.operator.served.Sub(b.operator.launched).Seconds(), b.ours.cpu("operator")
	if err := b.settle(ctx); err != nil {
		return s, err
	}
	settled := time.Since(b.operator.launched).Seconds()
	server = b.ours.cpu("kube-apiserver") - server
	requests, err := b.requestsSince(ctx, begin)
	if err != nil {
		return s, err
	}
	c := classify(requests)
	s.Turns = []Turn{{Who: theOperator, Instances: b.live, Seconds: round2(settled), Requests: requests, Memory: map[string]float64{"operator": b.ours.memory("operator")}}}
	s.Figures = []Figure{
		{Name: "launch to ready", Unit: "s", Operator: round2(ready), Target: atMost(15)},
		{Name: "launch until every instance was looked at", Unit: "s", Operator: round2(settled)},
		{Name: "writes", Unit: "in all", Operator: c.writes, Target: atMost(0), Count: true},
		{Name: "processor of the operator until ready", Unit: "s", Operator: round2(readyCPU)},
		{Name: "processor of the operator", Unit: "s in all", Operator: round2(b.ours.cpu("operator"))},
		{Name: "processor of the API server", Unit: "s in all", Operator: round2(server)},
	}
	return s, nil
}

var errBusy = errors.New("instances wait to be looked at")

// settle waits until the operator has looked at every instance and has nothing to do.
func (b *bench) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(time.Second / 4)
	defer ticker.Stop()
	last := 0.0
	for {
		done, err := b.operator.metric(ctx, reconciled)
		if err == nil {
			var depth float64
			depth, err = b.operator.metric(ctx, queueDepth)
			if err == nil && (depth > 0 || int(done) < b.live || done != last) {
				err = errBusy
			}
		}
		b.show.say("%s: looked %g times at %d instances", theOperator, done, b.live)
		if err == nil {
			return nil
		}
		last = done
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// requestsSince counts what the operator has asked for since a mark, in all.
func (b *bench) requestsSince(ctx context.Context, begin int64) (map[string]float64, error) {
	end, err := b.mark(ctx)
	if err != nil {
		return nil, err
	}
	counts, err := b.audit.count(begin, end, false)
	if err != nil {
		return nil, err
	}
	requests := map[string]float64{}
	for name, n := range counts {
		requests[name] = float64(n)
	}
	return requests, nil
}

// quiet leaves the live instances alone.
func quiet(ctx context.Context, b *bench) (Scenario, error) {
	var s Scenario
	if err := b.ensureGrown(ctx); err != nil {
		return s, err
	}
	if err := b.startOperator(ctx); err != nil {
		return s, err
	}
	if err := b.settle(ctx); err != nil {
		return s, err
	}
	begin, err := b.mark(ctx)
	if err != nil {
		return s, err
	}
	t := Turn{Who: theOperator, Instances: b.live, CPU: map[string]float64{}, Memory: map[string]float64{}}
	used, began := b.ours.cpu("operator"), time.Now()
	stop := b.observe(ctx, &t, "", usualScrape)
	if err := b.leaveAlone(ctx); err != nil {
		return s, errors.Join(err, stop())
	}
	if err := stop(); err != nil {
		return s, err
	}
	inTheEnd := b.ours.memory("operator")
	t.Seconds = round2(time.Since(began).Seconds())
	t.CPU["operator"] = round2(b.ours.cpu("operator") - used)
	if t.Requests, err = b.requestsSince(ctx, begin); err != nil {
		return s, err
	}
	c, most := classify(t.Requests), atMost(round2(150+12*float64(b.live)/1024))
	s.Turns = []Turn{t}
	s.Figures = []Figure{
		{Name: "writes, beside the lease", Unit: "in all", Operator: c.writes, Target: atMost(0), Count: true},
		{Name: "reads, beside watches and the lease", Unit: "in all", Operator: c.reads},
		{Name: "processor of the operator", Unit: "% of a core", Operator: round2(100 * t.CPU["operator"] / t.Seconds), Target: atMost(1)},
		{Name: "memory of the operator, highest", Unit: "MiB", Operator: t.Memory["operator"], Target: most},
		{Name: "memory of the operator, in the end", Unit: "MiB", Operator: inTheEnd, Target: most},
	}
	return s, nil
}

func (b *bench) leaveAlone(ctx context.Context) error {
	end := time.NewTimer(b.quiet)
	defer end.Stop()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	began := time.Now()
	for {
		b.show.say("%s: %d instances are left alone, %s of %s", theOperator, b.live, time.Since(began).Round(time.Second), b.quiet)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-ticker.C:
		}
	}
}
