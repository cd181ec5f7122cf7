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
	t = Turn{Who: who, CPU: map[string]float64{}, Memory: map[string]float64{}}
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
	r.sumUp(&t, began, counts)
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

// observe looks at the processes once a second until it is stopped, asks the operator for its
// metrics as often as it is told, and takes a profile.
func (b *bench) observe(ctx context.Context, t *Turn, profile string, scrape time.Duration) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(look)
		defer ticker.Stop()
		var asked time.Time
		for {
			b.weigh(t)
			if time.Since(asked) >= scrape {
				asked = time.Now()
				b.askForQueue(ctx, t)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	var profiling sync.WaitGroup
	var err error
	if profile != "" && b.profiles != "" && t.Who == theOperator {
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

func (b *bench) weigh(t *Turn) {
	for name := range b.ours {
		t.Memory[name] = max(t.Memory[name], b.ours.memory(name))
	}
}

func (b *bench) askForQueue(ctx context.Context, t *Turn) {
	if b.operator == nil || t.Who != theOperator {
		return
	}
	if metrics, err := b.operator.metrics(ctx); err == nil {
		t.QueueDepth = max(t.QueueDepth, int(queueDepth(metrics)))
	}
}

// sumUp writes down what the instances of a round took.
func (r *batch) sumUp(t *Turn, began time.Time, counts map[string]int) {
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
		if q := quantiles(durations(r.samples(reached))); q.N > 0 {
			t.Latency[state] = q
		}
	}
	started := r.samples(func(l *life) (time.Time, time.Time) { return l.created, l.starting })
	t.Series = series(started, began, 60)
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
		t.Throughput = round2(float64(len(started)) / took)
	}
}

// samples returns how long the instances took that have been at both ends.
func (r *batch) samples(ends func(*life) (from, to time.Time)) []sample {
	r.tracker.mu.Lock()
	defer r.tracker.mu.Unlock()
	var out []sample
	for _, l := range r.lives {
		if from, to := ends(l); !from.IsZero() && !to.IsZero() {
			out = append(out, sample{at: from, took: max(to.Sub(from), 0)})
		}
	}
	return out
}

func durations(samples []sample) []time.Duration {
	out := make([]time.Duration, len(samples))
	for i, s := range samples {
		out[i] = s.took
	}
	return out
}

func round2(v float64) float64 { return round(v, 2) }
