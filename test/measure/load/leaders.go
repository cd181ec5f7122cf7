package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

const (
	// leaderLives is how long an operator leads before it is killed. Another one leads fifteen seconds later.
	leaderLives = 45 * time.Second
	// guests is how many players have an instance at the same time, and stock how many instances are prepared.
	guests, stock = 12, 24
)

// claims is what was seen of prepared instances and of those who take them over.
type claims struct {
	mu sync.Mutex
	// claimant is the UID in status.claimedBy, by the UID of the prepared instance, and taken the prepared one, by the UID of an
	// instance of a player that has it.
	claimant, taken map[types.UID]types.UID
	// users are the UIDs of the players' instances, by their namespace.
	users   map[string]types.UID
	doubled []string
}

// see notes an event of an instance. Nothing of it may ever change.
func (c *claims) see(i *bergv1.ChallengeInstance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if claim := i.Status.ClaimedBy; claim != nil {
		c.note(c.claimant, i.UID, claim.UID, "prepared instance "+i.Name+" is claimed by two")
	}
	if i.Namespace != arena {
		return
	}
	if from := i.Status.PreparedFrom; from != "" {
		c.note(c.taken, i.UID, from, "instance "+i.Name+" takes over two")
		c.note(c.claimant, from, i.UID, "instance "+i.Name+" takes over what another one has claimed")
	}
	if at := i.Status.Namespace; at != "" {
		if user := c.users[at]; user != "" && user != i.UID {
			c.doubled = append(c.doubled, "namespace "+at+" has two instances")
		}
		c.users[at] = i.UID
	}
}

func (c *claims) note(known map[types.UID]types.UID, key, value types.UID, problem string) {
	if before := known[key]; before != "" && before != value {
		c.doubled = append(c.doubled, problem)
	}
	known[key] = value
}

// warmLeaders lets players take over prepared instances, one after the other, while two operators lead alternately because the
// leader is killed again and again. No prepared instance may have two players, no player two instances, and none may get lost.
func warmLeaders(ctx context.Context, b *bench) (Scenario, error) {
	s := Scenario{Columns: []string{"operator", ""}}
	seen := &claims{claimant: map[types.UID]types.UID{}, taken: map[types.UID]types.UID{}, users: map[string]types.UID{}}
	b.tracker.set(func() { b.tracker.seen = seen.see })
	defer b.tracker.set(func() { b.tracker.seen = nil })
	if err := b.startWith([]string{fmt.Sprintf("CHALLENGE_WARM_MAX_INSTANCES=%d", stock), fmt.Sprintf("CHALLENGE_WARM_MAX_STARTING=%d", stock)}); err != nil {
		return s, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var replicas sync.WaitGroup
	kills := make([]int, 2)
	for n := range kills {
		replicas.Go(func() {
			var err error
			if kills[n], err = b.keepKilling(ctx, n); err != nil {
				stop(err)
			}
		})
	}
	players := visitors{challenge: "taken", container: bergv1.Container{Image: awaits, DynamicFlag: &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}}, prepared: stock}
	r := b.newBatch("")
	began := time.Now()
	err := r.publish(ctx, players)
	if err == nil {
		err = r.receive(ctx, players, b.claims)
	}
	took := time.Since(began)
	err = errors.Join(err, b.client.Delete(context.WithoutCancel(ctx), players.published()))
	left := 0
	if err == nil {
		err = r.until(ctx, time.Second, func() (bool, error) {
			left, err = b.countNamespaces(ctx)
			r.show.say("%d namespaces are left", left)
			return left == 0 || time.Since(began) > took+5*time.Minute, err
		})
	}
	stop(nil)
	replicas.Wait()
	if err != nil {
		return s, err
	}
	zero := atMost(0)
	s.Figures = []Figure{
		{Name: "players", Unit: "each had an instance that ran", Operator: float64(b.claims)},
		{Name: "of them, with a prepared instance", Unit: "in total", Operator: float64(len(seen.taken))},
		{Name: "leaders killed", Unit: "times", Operator: float64(kills[0] + kills[1])},
		{Name: "instances with two players, and players with two", Unit: "in total", Operator: float64(len(seen.doubled)), Target: zero, Count: true},
		{Name: "claims whose player has another instance", Unit: "in total", Operator: float64(len(seen.lost())), Target: zero, Count: true},
		{Name: "namespaces left in the end", Unit: "in total", Operator: float64(left), Target: zero, Count: true},
		{Name: "players served", Unit: "per second", Operator: round2(float64(b.claims) / took.Seconds())},
	}
	return s, b.startWith(nil)
}

// lost returns the prepared instances that a player's instance claimed and does not have, although it runs.
func (c *claims) lost() (all []types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	started := map[types.UID]bool{}
	for _, user := range c.users {
		started[user] = true
	}
	for prepared, claimant := range c.claimant {
		if started[claimant] && c.taken[claimant] != prepared {
			all = append(all, prepared)
		}
	}
	return all
}

// keepKilling keeps an operator running, and kills it: one of two at a time, so that the other one leads.
func (b *bench) keepKilling(ctx context.Context, n int) (kills int, err error) {
	p, err := b.newOperator()
	if err != nil {
		return 0, err
	}
	wait := leaderLives * time.Duration(n+1)
	for {
		process, err := p.Start()
		if err != nil {
			return kills, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return kills, process.Stop(stopLimit)
		case <-process.Exited():
			return kills, fmt.Errorf("operator %d has ended by itself\n%s", n, p.Tail())
		case <-timer.C:
		}
		_ = process.Signal(syscall.SIGKILL) // it may have ended a moment ago
		<-process.Exited()
		kills++
		wait = 2 * leaderLives
	}
}

// receive lets players come, play and leave, some of them at the same time.
func (r *batch) receive(ctx context.Context, v visitors, count int) error {
	all := make([]*life, count)
	for n := range all {
		all[n] = r.next(v.challenge)
	}
	gone := 0
	return inParallel(guests, all, func(l *life) error {
		if err := r.createOne(ctx, l, long); err != nil {
			return err
		}
		if err := r.reach(ctx, l, reachedRunning); err != nil {
			return fmt.Errorf("instance %s does not run: %w", l.key.Name, err)
		}
		if err := r.client.Delete(ctx, &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}}); err != nil {
			return err
		}
		if err := r.reach(ctx, l, reachedGone); err != nil {
			return fmt.Errorf("instance %s does not end: %w", l.key.Name, err)
		}
		r.tracker.set(func() { gone++ })
		r.show.say("%d of %d players have come and gone", gone, count)
		return nil
	})
}

// reach waits until one instance has reached a state.
func (r *batch) reach(ctx context.Context, l *life, reached func(*life) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return r.until(ctx, poll, func() (done bool, err error) {
		r.tracker.set(func() { done = reached(l) })
		return done, nil
	})
}

// countNamespaces counts the namespaces of instances.
func (b *bench) countNamespaces(ctx context.Context) (int, error) {
	var all corev1.NamespaceList
	err := b.client.List(ctx, &all, client.MatchingLabels{bergv1.LabelManagedBy: bergv1.ManagedBy})
	return len(all.Items), err
}
