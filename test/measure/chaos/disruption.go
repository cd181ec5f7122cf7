package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/kube"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

// disruption is what happens to an operator, or to the API server.
type disruption struct {
	at    time.Duration // since the storm began
	what  string
	who   int    // which operator
	whose string // which Challenge
	lasts time.Duration
}

const (
	killed     = "operator killed"
	stopped    = "operator asked to stop"
	paused     = "operator paused"
	cutOff     = "operator cut off from the API server"
	bothKilled = "both operators killed"
	apiKilled  = "API server killed and restarted"
	edited     = "Challenge edited"
	recreated  = "Challenge deleted and created again"
	spared     = "operators spared, since none leads"

	// shortestStorm is as long as it takes for all of it to happen.
	shortestStorm = 30 * time.Second
	apiEvery      = 25 * time.Second
)

// disruptionsOf returns what follows from a seed.
func disruptionsOf(o options) []disruption {
	chance := rand.New(rand.NewPCG(o.seed, 2))
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(chance.Int64N(int64(to-from))) }
	// As often as it stands there.
	kinds := []string{killed, killed, killed, killed, killed, stopped, paused, cutOff, bothKilled, edited, edited, edited, recreated}
	var all []disruption
	api := apiEvery / 2
	for at := 2 * time.Second; at < o.storm; at += between(500*time.Millisecond, 6*time.Second) {
		if at > api {
			all = append(all, disruption{at: at, what: apiKilled})
			api += apiEvery
			continue
		}
		m := disruption{at: at, what: kinds[chance.IntN(len(kinds))], who: chance.IntN(2), whose: sound[chance.IntN(len(sound))]}
		switch m.what {
		case paused, cutOff:
			m.lasts = between(time.Second, 18*time.Second)
		case recreated:
			m.lasts = between(0, 3*time.Second)
		}
		all = append(all, m)
	}
	return all
}

// disruptAll lets everything go wrong until the storm is over, and everything stand
// again.
func (w *world) disruptAll(ctx context.Context) error {
	began := time.Now()
	errs := make(chan error)
	all := disruptionsOf(w.options)
	for _, m := range all {
		go func() {
			if err := pause(ctx, m.at-time.Since(began)); err != nil {
				errs <- err
				return
			}
			if hurtsOperators(m) && !w.isLed(ctx) {
				w.count(spared)
				errs <- nil
				return
			}
			w.count(m.what)
			if err := w.disrupt(ctx, m); err != nil {
				errs <- fmt.Errorf("%s: %w", m.what, err)
				return
			}
			errs <- nil
		}()
	}
	var first error
	for range all {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	if first == nil {
		first = pause(ctx, w.storm-time.Since(began))
	}
	for _, r := range w.replicas {
		r.proxy.setCalm(true)
	}
	return first
}

// hurtsOperators: while no replica leads, nothing is done that could go wrong, and the one that
// is killed then only has to wait for the lease again.
func hurtsOperators(m disruption) bool {
	return slices.Contains([]string{killed, bothKilled, stopped, paused, cutOff}, m.what)
}

func (w *world) isLed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return slices.ContainsFunc(w.replicas, func(r *replica) bool {
		metrics, err := r.scrape(ctx)
		return err == nil && metrics[leads] == 1
	})
}

func (w *world) disrupt(ctx context.Context, m disruption) error {
	r := w.replicas[m.who]
	switch m.what {
	case killed:
		r.signal(syscall.SIGKILL)
	case bothKilled:
		for _, r := range w.replicas {
			r.signal(syscall.SIGKILL)
		}
	case stopped:
		r.signal(syscall.SIGTERM)
	case paused:
		r.signal(syscall.SIGSTOP)
		defer r.signal(syscall.SIGCONT)
		return pause(ctx, m.lasts)
	case cutOff:
		r.proxy.gate.SetShut(true)
		defer r.proxy.gate.SetShut(false)
		return pause(ctx, m.lasts)
	case apiKilled:
		return w.restartAPIServer(ctx)
	case edited:
		return w.edit(ctx, m.whose)
	case recreated:
		return w.recreate(ctx, m.whose, m.lasts)
	}
	return nil
}

// restartAPIServer kills the API server of the cluster and starts it again.
func (w *world) restartAPIServer(ctx context.Context) error {
	w.api.Lock()
	defer w.api.Unlock()
	places, err := disk.Find()
	if err != nil {
		return err
	}
	var out strings.Builder
	options := kube.Options{
		Name:    filepath.Base(filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG")))),
		Timeout: maxCalm,
	}
	if err := kube.Restart(ctx, places, options, "kube-apiserver", progress.New(&out)); err != nil {
		return fmt.Errorf("%w\n%s", err, &out)
	}
	return nil
}
