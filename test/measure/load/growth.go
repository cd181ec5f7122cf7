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
	// startingTogether is how many instances are being started at a time while others are
	// added: the next one comes when one runs.
	startingTogether = 64
	// restarts is how often the operator is restarted: one start differs from the next
	// by half.
	restarts = 3
	// resting is how many cores an API server uses that has hardly anything to do, in
	// the time between two looks; maxRest is how long it is waited for.
	resting     = 0.25
	lookedAfter = 10 * time.Second
	maxRest     = 5 * time.Minute
)

// growTo adds instances until there are n, and calls grown after every step.
func (r *batch) growTo(ctx context.Context, n int, grown func(lives []*life)) error {
	begin := len(r.lives)
	for len(r.lives) < n || r.count(reachedRunning) < n {
		running := r.count(reachedRunning)
		more := min(n-len(r.lives), startingTogether-(len(r.lives)-running))
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
	s.Figures = append(counted(t, Turn{})[:3],
		Figure{Name: "time to starting, p50", Unit: "ms", Operator: t.Latency["starting"].P50},
		Figure{Name: "time to starting, p99", Unit: "ms", Operator: t.Latency["starting"].P99},
		Figure{Name: "instances that came to Running", Unit: "per second", Operator: round2(float64(b.live) / t.Seconds), HigherIsBetter: true},
		Figure{Name: "CPU of the operator", Unit: "ms for each instance", Operator: round2(perInstance(t, "operator"))})
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

// restart ends the operator and starts it again, several times.
func restart(ctx context.Context, b *bench) (Scenario, error) {
	var s Scenario
	if err := b.ensureGrown(ctx); err != nil {
		return s, err
	}
	all := make([]relaunch, restarts)
	writes := 0.0
	for i := range all {
		var err error
		if all[i], err = b.restarted(ctx); err != nil {
			return s, err
		}
		writes += classify(all[i].Requests).writes
	}
	ready := func(l relaunch) float64 { return l.ready }
	slowest := all[0].ready
	for _, l := range all {
		slowest = max(slowest, l.ready)
	}
	s.Figures = []Figure{
		{Name: "launch to ready, median", Unit: "s", Operator: medianOf(all, ready), Target: atMost(15)},
		{Name: "launch to ready, longest", Unit: "s", Operator: round2(slowest)},
		{Name: "launch until every instance was reconciled, median", Unit: "s", Operator: medianOf(all, func(l relaunch) float64 { return l.Seconds })},
		{Name: "writes", Unit: "in total", Operator: writes, Target: atMost(0), Count: true},
		{Name: "CPU of the operator until ready, median", Unit: "s", Operator: medianOf(all, func(l relaunch) float64 { return l.readyCPU })},
		{Name: "CPU of the operator, median", Unit: "s in total", Operator: medianOf(all, func(l relaunch) float64 { return l.CPU["operator"] })},
		{Name: "CPU of the API server, median", Unit: "s in total", Operator: medianOf(all, func(l relaunch) float64 { return l.CPU["kube-apiserver"] })},
		{Name: "memory of the operator, for a moment, median", Unit: "MiB", Operator: medianOf(all, func(l relaunch) float64 { return l.Memory })},
	}
	return s, nil
}

// relaunch is a start of the operator, until it has nothing to do.
type relaunch struct {
	Turn
	// ready is after how many seconds it was ready, and readyCPU how many of a
	// processor that took.
	ready, readyCPU float64
}

// restarted ends the operator and starts it again when all is at rest.
func (b *bench) restarted(ctx context.Context) (relaunch, error) {
	l := relaunch{Turn: Turn{Instances: b.live, CPU: map[string]float64{}}}
	if err := b.stopOperator(); err != nil {
		return l, err
	}
	if err := b.rest(ctx); err != nil {
		return l, err
	}
	begin, err := b.mark(ctx)
	if err != nil {
		return l, err
	}
	before := b.ours.cpu("kube-apiserver")
	if err := b.startOperator(ctx); err != nil {
		return l, err
	}
	l.ready, l.readyCPU = b.operator.served.Sub(b.operator.Launched).Seconds(), b.ours.cpu("operator")
	if err := b.settle(ctx); err != nil {
		return l, err
	}
	l.Seconds = round2(time.Since(b.operator.Launched).Seconds())
	l.CPU["operator"], l.CPU["kube-apiserver"] = round2(b.ours.cpu("operator")), round2(b.ours.cpu("kube-apiserver")-before)
	l.Memory = b.ours.peak("operator")
	l.Requests, err = b.requestsSince(ctx, begin)
	return l, err
}

// rest waits until the API server has hardly anything to do: what comes next would
// otherwise be measured while other controllers still work on what came before.
func (b *bench) rest(ctx context.Context) error {
	ticker := time.NewTicker(lookedAfter)
	defer ticker.Stop()
	before := b.ours.cpu("kube-apiserver")
	for began := time.Now(); time.Since(began) < maxRest; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		now := b.ours.cpu("kube-apiserver")
		used := (now - before) / lookedAfter.Seconds()
		if used < resting {
			return nil
		}
		before = now
		b.show.say("the API server has settled: it uses %.0f %% of a core", 100*used)
	}
	return nil // it has other clients: so be it
}

var errBusy = errors.New("instances wait to be reconciled")

// settle waits until the operator has looked at every instance and has nothing to do.
func (b *bench) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	ticker := time.NewTicker(time.Second / 4)
	defer ticker.Stop()
	last := 0.0
	for {
		metrics, err := b.operator.metrics(ctx)
		done := reconciled(metrics)
		if err == nil && (queueDepth(metrics) > 0 || int(done) < b.live || done != last) {
			err = errBusy
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
	if err := b.rest(ctx); err != nil {
		return s, err
	}
	begin, err := b.mark(ctx)
	if err != nil {
		return s, err
	}
	t := Turn{Instances: b.live, CPU: map[string]float64{}}
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
	s.Figures = []Figure{
		{Name: "writes, without the lease", Unit: "in total", Operator: c.writes, Target: atMost(0), Count: true},
		{Name: "reads, without watches and the lease", Unit: "in total", Operator: c.reads},
		{Name: "CPU of the operator", Unit: "% of a core", Operator: round2(100 * t.CPU["operator"] / t.Seconds), Target: atMost(1)},
		{Name: "memory of the operator, highest", Unit: "MiB", Operator: t.Memory, Target: most},
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
