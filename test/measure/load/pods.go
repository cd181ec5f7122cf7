package main

import (
	"context"
	"fmt"
	"time"
)

const (
	// alone is how many real pods are started one after the other, and together is how
	// many are started concurrently.
	alone, together = 10, 10
	// podRounds is how often that is repeated at most: machines that share a host are now faster
	// and now slower. The median of all counts.
	podRounds = 3
	// readyWithin is what the operator may add to the start of a real pod, in milliseconds.
	readyWithin = 100
)

// pods measures, on real pods, what remains of the time from creation to Running without
// the time from a pod's creation until its containers run, which belongs to the scheduler and the
// kubelet. The controllers of Kubernetes that make a pod of a Deployment are in it. With node ports
// it also measures when a player connects: Running means that to the operator alone.
func pods(ctx context.Context, b *bench) (Scenario, error) {
	var s Scenario
	for _, kind := range []struct {
		name string
		run  func(context.Context, *batch) error
	}{
		{fmt.Sprintf("%d, one after the other", alone), func(ctx context.Context, r *batch) error {
			for i := range alone {
				if err := r.play(ctx, 1); err != nil {
					return err
				}
				if err := r.await(ctx, "Running", i+1, reachedRunning); err != nil {
					return err
				}
			}
			return nil
		}},
		{fmt.Sprintf("%d together", together), func(ctx context.Context, r *batch) error {
			if err := r.play(ctx, together); err != nil {
				return err
			}
			return r.await(ctx, "Running", together, reachedRunning)
		}},
	} {
		lives := map[string][]*life{}
		err := inRounds(min(podRounds, b.rounds), func(_ int, who string) error {
			_, r, err := b.turn(ctx, who, "", kind.run)
			if err != nil {
				return err
			}
			lives[who] = append(lives[who], r.lives...)
			_, err = b.clearTurn(ctx, who, r.lives)
			return err
		})
		if err != nil {
			return s, err
		}
		operator, bare := b.shares(lives[theOperator]), b.shares(lives[theBare])
		in := kind.name + ": "
		figure := func(name, share string) Figure {
			return compare(in+name+", p50", "ms", operator[share].P50, bare[share].P50, nil)
		}
		floor := bare["rest"].P50
		s.Figures = append(s.Figures,
			figure("creation to Running", "all"))
		if b.hasNodePorts() {
			s.Figures = append(s.Figures, figure("creation until a player connects", "connected"))
		}
		s.Figures = append(s.Figures,
			figure("scheduler and kubelet", "pod"),
			figure("creation until the pod is there", "before"),
			figure("containers run until Running", "after"),
			Figure{Name: in + "creation to Running without scheduler and kubelet, p50", Unit: "ms", Operator: operator["rest"].P50, Bare: &floor, Target: atMost(readyWithin)})
	}
	return s, nil
}

// shares tells what of the time from creation to Running was a pod's, and what the rest.
func (b *bench) shares(lives []*life) map[string]Quantiles {
	pod := func(l *life) time.Duration { return l.podRuns.Sub(l.podSeen) }
	shares := map[string]Quantiles{}
	for name, of := range map[string]func(*life) time.Duration{
		"all":       func(l *life) time.Duration { return l.running.Sub(l.created) },
		"connected": func(l *life) time.Duration { return l.connected.Sub(l.created) },
		"pod":       pod,
		"before":    func(l *life) time.Duration { return l.podSeen.Sub(l.created) },
		"after":     func(l *life) time.Duration { return l.running.Sub(l.podRuns) },
		"rest":      func(l *life) time.Duration { return l.running.Sub(l.created) - pod(l) },
	} {
		var took []time.Duration
		b.tracker.set(func() {
			for _, l := range lives {
				took = append(took, of(l))
			}
		})
		shares[name] = quantiles(took)
	}
	return shares
}
