package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

const (
	// boots is the image whose simulated container boots for twenty seconds, awaits that of one that waits for its flag.
	boots  = "berg.test/behaviour/slow:20s"
	awaits = "berg.test/behaviour/flag:1"
	// maxClaim and maxClaimP99 are what a player waits for a prepared instance at most, in milliseconds, and maxWarmRatio is the
	// same compared with a new instance.
	maxClaim, maxClaimP99, maxWarmRatio = 200, 1000, 0.4
	// maxOthers is how much longer the players of other Challenges wait.
	maxOthers = 1 / 0.95
)

// visitors are players of one Challenge.
type visitors struct {
	challenge string
	container bergv1.Container
	count     int
	interval  time.Duration
	// prepared is how many instances the Challenge keeps for them.
	prepared int
}

// warm compares players who take over prepared instances with the same players without them, while others start as always. Pods
// are simulated.
func warm(ctx context.Context, b *bench) (Scenario, error) {
	s := Scenario{Columns: warmColumns}
	late := bergv1.Container{Image: boots, DynamicFlag: &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/run/flag/flag.txt"}, Late: bergv1.LateFile}}
	flagged := bergv1.Container{Image: awaits, DynamicFlag: &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}}
	booting := visitors{challenge: "boots", container: late, count: 100, interval: time.Second / 5, prepared: 100}
	web := visitors{challenge: "web", container: flagged, count: 30, interval: time.Second, prepared: 15}
	newWeb := web.without()
	others := visitors{challenge: "others", container: bergv1.Container{Image: b.image}, count: 20, interval: time.Second}
	taken, cold, err := b.visitBoth(ctx, booting, others)
	if err != nil {
		return s, err
	}
	both, err := b.visit(ctx, []visitors{web, newWeb})
	if err != nil {
		return s, err
	}
	figure := func(name string, taken, cold, target float64) Figure {
		return Figure{Name: name, Unit: "ms", Operator: taken, Bare: &cold, Target: atMost(target)}
	}
	s.Figures = []Figure{
		figure("boots for 20 s, 5 players a second: creation to Running, p50", taken[booting.challenge].P50, cold[booting.challenge].P50, maxClaim),
		figure("the same, p99", taken[booting.challenge].P99, cold[booting.challenge].P99, maxClaimP99),
		compare("a variable has the flag, 1 player a second: creation to Running, p50", "ms", both[web.challenge].P50, both[newWeb.challenge].P50, nil),
		compare("others, 1 player a second, while those of the first row come: creation to Running, p50", "ms", taken[others.challenge].P50, cold[others.challenge].P50, atMost(round2(maxOthers))),
	}
	return s, b.startWith(nil)
}

var warmColumns = []string{"prepared", "new"}

// warmPods is the same on real pods, for each form of flag: one player after the other, alternately with a prepared instance and with
// a new one.
func warmPods(ctx context.Context, b *bench) (Scenario, error) {
	s := Scenario{Columns: warmColumns}
	for _, kind := range []struct {
		name   string
		flag   *bergv1.DynamicFlag
		target *Target
	}{
		{"no flag", nil, atMost(maxWarmRatio)},
		{"late: file", &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/run/flag/flag.txt"}, Late: bergv1.LateFile}, atMost(maxWarmRatio)},
		{"a variable", &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}, atMost(maxWarmRatio)},
		{"a file", &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/flag.txt"}}, nil},
	} {
		v := visitors{challenge: "web", container: bergv1.Container{Image: b.image, DynamicFlag: kind.flag}, count: alone, prepared: 3}
		took, err := b.visit(ctx, []visitors{v, v.without()})
		if err != nil {
			return s, err
		}
		s.Figures = append(s.Figures, compare(kind.name+": creation to Running, p50", "ms", took[v.challenge].P50, took[v.without().challenge].P50, kind.target))
	}
	return s, b.startWith(nil)
}

// visitBoth lets the same players come without and with prepared instances.
func (b *bench) visitBoth(ctx context.Context, all ...visitors) (taken, cold map[string]Quantiles, err error) {
	without := slices.Clone(all)
	for n := range without {
		without[n].prepared = 0
	}
	if cold, err = b.visit(ctx, without); err != nil {
		return nil, nil, err
	}
	taken, err = b.visit(ctx, all)
	return taken, cold, err
}

// without are as many players of an equal Challenge that has no prepared instances.
func (v visitors) without() visitors {
	v.challenge, v.prepared = v.challenge+"-new", 0
	return v
}

// visit lets players come, and returns how long those of each Challenge waited until their instances ran.
func (b *bench) visit(ctx context.Context, all []visitors) (map[string]Quantiles, error) {
	limit := 0
	for _, v := range all {
		limit += v.prepared
	}
	settings := []string{
		fmt.Sprintf("CHALLENGE_WARM_MAX_INSTANCES=%d", limit), fmt.Sprintf("CHALLENGE_WARM_MAX_STARTING=%d", max(limit, 1)),
		"CHALLENGE_CPU_REQUEST=10m", // all fit on a node of two cores
	}
	if err := b.startWith(settings); err != nil {
		return nil, err
	}
	took := map[string]Quantiles{}
	_, r, err := b.turn(ctx, theOperator, "", func(ctx context.Context, r *batch) error {
		var coming sync.WaitGroup
		errs, lives := make([]error, len(all)), make([][]*life, len(all))
		for n, v := range all {
			if err := r.publish(ctx, v); err != nil {
				return err
			}
			for range v.count {
				lives[n] = append(lives[n], r.next(v.challenge))
			}
		}
		if all[0].interval == 0 {
			return r.alternate(ctx, all, lives, took)
		}
		for n, v := range all {
			coming.Go(func() { errs[n] = r.arrive(ctx, v, lives[n]) })
		}
		coming.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if err := r.await(ctx, "Running", len(r.lives), reachedRunning); err != nil {
			return err
		}
		for n, v := range all {
			took[v.challenge] = r.waits(lives[n])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, v := range all { // then its prepared instances end
		if err := b.client.Delete(ctx, v.published()); err != nil {
			return nil, err
		}
	}
	if _, err := b.clearTurn(ctx, theOperator, r.lives); err != nil {
		return nil, err
	}
	return took, r.awaitPrepared(ctx, "", func(_, all int) bool { return all == 0 })
}

// startWith ends the operator. The next turn starts it with these settings.
func (b *bench) startWith(settings []string) error {
	b.settings = settings
	return b.stopOperator()
}

func (v visitors) published() *bergv1.Challenge {
	container := v.container
	container.Hostname, container.Ports = "web", []bergv1.Port{{Name: "web", Port: 8080, Type: bergv1.PublicHTTPRoute}}
	c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: v.challenge}}
	c.Spec.Containers = []bergv1.Container{container}
	if v.prepared > 0 {
		c.Spec.Warm = &bergv1.Warm{Min: int32(v.prepared)}
	}
	return c
}

// publish creates the Challenge of visitors, as soon as an earlier one of that name is gone, and waits until all instances that it
// asks for are prepared.
func (r *batch) publish(ctx context.Context, v visitors) error {
	if err := eventually(ctx, func(ctx context.Context) error { return r.client.Create(ctx, v.published()) }); err != nil {
		return err
	}
	return r.awaitPrepared(ctx, v.challenge, func(ready, _ int) bool { return ready >= v.prepared })
}

// awaitPrepared waits until enough prepared instances of a Challenge can be taken over, and so many exist of any.
func (r *batch) awaitPrepared(ctx context.Context, challenge string, enough func(ready, all int) bool) error {
	return r.until(ctx, time.Second/4, func() (bool, error) {
		var all bergv1.ChallengeInstanceList
		if err := r.client.List(ctx, &all, client.InNamespace(installed.Namespace), client.HasLabels{bergv1.LabelPrepared}); err != nil {
			return false, err
		}
		ready := 0
		for i := range all.Items {
			if all.Items[i].Spec.ChallengeRef.Name == challenge && status.Claimable(&all.Items[i]) {
				ready++
			}
		}
		r.show.say("%d prepared instances of %s are ready, of %d that exist", ready, challenge, len(all.Items))
		return enough(ready, len(all.Items)), nil
	})
}

// alternate creates the instances of players, alternately of each Challenge, when the one before runs and its prepared one is replaced.
func (r *batch) alternate(ctx context.Context, all []visitors, lives [][]*life, took map[string]Quantiles) error {
	for player := range all[0].count {
		for n, v := range all {
			if err := r.createOne(ctx, lives[n][player], long); err != nil {
				return err
			}
			if err := r.await(ctx, "Running", player*len(all)+n+1, reachedRunning); err != nil {
				return err
			}
			if err := r.awaitPrepared(ctx, v.challenge, func(ready, _ int) bool { return ready >= v.prepared }); err != nil {
				return err
			}
		}
	}
	for n, v := range all {
		took[v.challenge] = r.waits(lives[n])
	}
	return nil
}

// arrive creates the instances of players at their interval.
func (r *batch) arrive(ctx context.Context, v visitors, lives []*life) error {
	var under sync.WaitGroup
	defer under.Wait()
	errs := make([]error, len(lives))
	ticker := time.NewTicker(v.interval)
	defer ticker.Stop()
	for n, l := range lives {
		under.Go(func() { errs[n] = r.createOne(ctx, l, long) })
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	under.Wait()
	return errors.Join(errs...)
}

// waits is how long players waited from their request until their instance ran.
func (r *batch) waits(lives []*life) Quantiles {
	var took []time.Duration
	r.tracker.set(func() {
		for _, l := range lives {
			took = append(took, max(l.running.Sub(l.created), 0))
		}
	})
	return quantiles(took)
}
