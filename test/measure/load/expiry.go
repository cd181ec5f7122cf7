package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

const (
	// calm is how long one instance is started each second before the expiry, to
	// know how long that takes when nothing else happens.
	calm = 30 * time.Second
	// storm is the same from the expiry on.
	storm = 30 * time.Second
	// ahead is how long before they expire instances are told so, and settling what is
	// added for each: the operator writes down when it expires, and must be done by then.
	ahead    = 15 * time.Second
	settling = 60 * time.Millisecond
)

// expiry lets many instances expire in the same second, while one more is started
// each second.
func expiry(ctx context.Context, b *bench) (Scenario, error) {
	var s Scenario
	by := map[string]*expiryResult{}
	for _, who := range []string{theBare, theOperator} {
		result := &expiryResult{}
		_, r, err := b.turn(ctx, who, "", func(ctx context.Context, r *batch) error { return result.fill(ctx, r) })
		if err != nil {
			return s, err
		}
		_, _, err = b.turn(ctx, who, "expiry", func(ctx context.Context, again *batch) error {
			again.lives = r.lives
			return result.expire(ctx, again)
		})
		if err != nil {
			return s, err
		}
		by[who] = result
	}
	o, f := by[theOperator], by[theBare]
	s.Figures = []Figure{
		compare("expiry until all instances are being deleted", "ms", o.instances, f.instances, atMost(1.3)),
		compare("expiry until all namespaces are being deleted", "ms", o.namespaces, f.namespaces, atMost(1.3)),
		compare("started before the expiry, time to starting, p99", "ms", o.before.P99, f.before.P99, nil),
		compare("started right after the expiry, time to starting, p99", "ms", o.after.P99, f.after.P99, nil),
		{Name: "slowdown by the expiry, operator", Unit: "times", Operator: round2(o.after.P99 / o.before.P99), Target: atMost(3)},
		{Name: "slowdown by the expiry, bare client", Unit: "times", Operator: round2(f.after.P99 / f.before.P99)},
	}
	return s, nil
}

// expiryResult is in milliseconds.
type expiryResult struct {
	instances, namespaces float64
	before, after         Quantiles
}

// fill creates the instances that are going to expire.
func (e *expiryResult) fill(ctx context.Context, r *batch) error {
	return r.growTo(ctx, r.expiring, nil)
}

func (e *expiryResult) expire(ctx context.Context, r *batch) error {
	if err := r.rest(ctx); err != nil {
		return err
	}
	before, err := r.probe(ctx, time.Now(), calm)
	if err != nil {
		return err
	}
	at := time.Now()
	if r.who == theOperator {
		at = at.Add(ahead + time.Duration(len(r.lives))*settling).Truncate(time.Second)
		if err := r.endAllAt(ctx, at); err != nil {
			return err
		}
	} else {
		for _, l := range r.lives {
			r.bare.timeOutLater(r.bare.instance(l.namespace))
		}
	}
	after, err := r.probe(ctx, at, storm)
	if err != nil {
		return err
	}
	if err := r.await(ctx, "being deleted with their namespace", len(r.lives), reachedNamespaceEnding); err != nil {
		return err
	}
	e.before, e.after = quantiles(before.starting()), quantiles(after.starting())
	for _, l := range r.lives {
		e.instances = max(e.instances, milliseconds(l.ending.Sub(at)))
		e.namespaces = max(e.namespaces, milliseconds(l.namespaceEnding.Sub(at)))
	}
	for _, probes := range []*batch{before, after} {
		if err := probes.delete(ctx); err != nil {
			return err
		}
		r.lives = append(r.lives, probes.lives...)
	}
	return r.await(ctx, "gone", len(r.lives), reachedGone)
}

// endAllAt makes all instances of the round expire at one time.
func (r *batch) endAllAt(ctx context.Context, at time.Time) error {
	r.show.now("%s: setting %d expiries to %s", r.who, len(r.lives), at.Format(time.TimeOnly))
	return inParallel(parallelRequests, r.lives, func(l *life) error {
		instance := &bergv1.ChallengeInstance{}
		if err := r.client.Get(ctx, l.key, instance); err != nil {
			return err
		}
		patch := []byte(`{"spec":{"timeout":"` + seconds(at.Sub(instance.Status.StartedAt.Time)) + `"}}`)
		return r.client.Patch(ctx, instance, client.RawPatch(types.MergePatchType, patch))
	})
}

// probe starts one instance each second from a time on, for a while.
func (r *batch) probe(ctx context.Context, from time.Time, window time.Duration) (*batch, error) {
	probes := r.newBatch(r.who)
	begin := time.NewTimer(time.Until(from))
	defer begin.Stop()
	select {
	case <-begin.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := probes.steadily(ctx, time.Second, window, 0); err != nil {
		return nil, err
	}
	return probes, probes.await(ctx, "Starting", len(probes.lives), reachedStarting)
}

func (r *batch) starting() []time.Duration {
	return r.durations(func(l *life) (time.Time, time.Time) { return l.created, l.starting })
}
