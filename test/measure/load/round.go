package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// The two whose turn it can be.
const (
	theOperator = "operator"
	theBare     = "bare client"
)

const (
	// look is how often the processes are looked at.
	look = time.Second
	// usualScrape is how often Prometheus asks for metrics by default.
	usualScrape = 30 * time.Second
)

// profileSeconds is how much of a turn a CPU profile covers.
const profileSeconds = "15"

// turn lets one of the two work while the other one rests, and measures. A name for
// profiles may be empty.
func (b *bench) turn(ctx context.Context, who, profile string, work func(context.Context, *batch) error) (t Turn, r *batch, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	r = b.newBatch(who)
	if who == theBare {
		if err := b.stopOperator(); err != nil {
			return t, r, err
		}
	} else if b.operator == nil {
		if err := b.startOperator(ctx); err != nil {
			return t, r, err
		}
		if err := b.warmUp(ctx); err != nil {
			return t, r, err
		}
	}

	begin, err := b.mark(ctx)
	if err != nil {
		return t, r, err
	}
	t = Turn{CPU: map[string]float64{}}
	before := map[string]float64{}
	for name := range b.ours {
		before[name] = b.ours.cpu(name)
	}
	stop := b.observe(ctx, &t, profile, look)
	began := time.Now()
	err = work(ctx, r)
	t.Seconds = round2(time.Since(began).Seconds())
	if err = errors.Join(err, stop()); err != nil {
		return t, r, err
	}
	for name := range b.ours {
		t.CPU[name] = round2(b.ours.cpu(name) - before[name])
	}
	end, err := b.mark(ctx)
	if err != nil {
		return t, r, err
	}
	counts, err := b.audit.count(begin, end, who == theBare)
	if err != nil {
		return t, r, err
	}
	r.sumUp(&t, counts)
	return t, r, nil
}

// inRounds gives each of the two a turn in every round. They take turns in being first: what
// a turn leaves behind affects the next one.
func inRounds(rounds int, turn func(n int, who string) error) error {
	order := []string{theBare, theOperator}
	for i := range rounds {
		for _, who := range order {
			if err := turn(i, who); err != nil {
				return err
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// clearTurn is a turn in which instances that were started before are ended.
func (b *bench) clearTurn(ctx context.Context, who string, lives []*life) (Turn, error) {
	t, _, err := b.turn(ctx, who, "", func(ctx context.Context, r *batch) error {
		r.lives = lives
		return r.clear(ctx)
	})
	return t, err
}

// observe looks at the operator once a second until it is stopped, asks it for its metrics every scrape, and takes
// a profile.
func (b *bench) observe(ctx context.Context, t *Turn, profile string, scrape time.Duration) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var watching, profiling sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(look)
		defer ticker.Stop()
		var asked time.Time
		for {
			t.Memory = max(t.Memory, b.ours.memory("operator"))
			if b.operator != nil && time.Since(asked) >= scrape {
				asked = time.Now()
				_, _ = b.operator.metrics(ctx) // as Prometheus does: what it costs is part of the turn
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	var err error
	if profile != "" && b.profiles != "" && b.operator != nil {
		profiling.Go(func() {
			err = errors.Join(
				b.saveProfile(ctx, "profile?seconds="+profileSeconds, profile+"-cpu.pprof"),
				b.saveProfile(ctx, "allocs", profile+"-allocs.pprof"))
		})
	}
	return func() error {
		profiling.Wait()
		cancel()
		watching.Wait()
		return err
	}
}

// sumUp writes down what the instances of a round took.
func (r *batch) sumUp(t *Turn, counts map[string]int) {
	t.Instances = len(r.lives)
	t.Requests = map[string]float64{}
	for name, n := range counts {
		t.Requests[name] = round2(float64(n) / float64(max(t.Instances, 1)))
	}
	t.Latency = map[string]Quantiles{}
	for state, reached := range map[string]func(*life) (from, to time.Time){
		"starting": func(l *life) (time.Time, time.Time) { return l.created, l.starting },
		"running":  func(l *life) (time.Time, time.Time) { return l.created, l.running },
		"gone":     func(l *life) (time.Time, time.Time) { return l.deleted, l.gone },
	} {
		if q := quantiles(r.durations(reached)); q.N > 0 {
			t.Latency[state] = q
		}
	}
	var firstSent, lastStarting time.Time
	for _, l := range r.lives {
		if firstSent.IsZero() || l.sent.Before(firstSent) {
			firstSent = l.sent
		}
		if l.starting.After(lastStarting) {
			lastStarting = l.starting
		}
	}
	if took := lastStarting.Sub(firstSent).Seconds(); took > 0 {
		t.Throughput = round2(float64(len(r.starting())) / took)
	}
}

// durations returns how long those instances took that have been at both ends.
func (r *batch) durations(ends func(*life) (from, to time.Time)) []time.Duration {
	r.tracker.mu.Lock()
	defer r.tracker.mu.Unlock()
	var out []time.Duration
	for _, l := range r.lives {
		if from, to := ends(l); !from.IsZero() && !to.IsZero() {
			out = append(out, max(to.Sub(from), 0))
		}
	}
	return out
}

func round2(v float64) float64 { return round(v, 2) }
