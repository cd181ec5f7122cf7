package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/measure/machine"
)

// rank returns the p-th percentile by the nearest rank, in milliseconds.
func rank(all []time.Duration, p float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	at := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return float64(sorted[max(at, 0)].Microseconds()) / 1000
}

// direct creates an instance as a platform that calls Kubernetes does.
func (b *bench) direct(ctx context.Context) (*bergv1.ChallengeInstance, error) {
	i := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: "direct-" + uuid.NewString()[:8]}}
	i.Spec.ChallengeRef.Name = challenge
	i.Spec.OwnerID = uuid.NewString()
	i.Spec.Flag = "flag{measured}"
	i.Spec.Timeout = "10h"
	return i, b.client.Create(ctx, i)
}

// inTurns runs the two of a round, which take turns in being first, each on an empty cluster.
func (b *bench) inTurns(ctx context.Context, round int, turns []func() error) error {
	if round%2 == 1 {
		slices.Reverse(turns)
	}
	for _, turn := range turns {
		if err := turn(); err != nil {
			return err
		}
		if err := b.live.empty(ctx); err != nil {
			return err
		}
	}
	return nil
}

// boot starts instances by turns, one at a time, through berg-api and directly.
func boot(ctx context.Context, b *bench) ([]figure, error) {
	r, err := b.startReplica(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Kill()
	if err := b.register(ctx, r.url, "1"); err != nil {
		return nil, err
	}
	var through, direct []time.Duration
	for n := range b.pairs + 2 { // the first ones warm up
		source := fmt.Sprint(n)
		turns := []func() error{
			func() error {
				began := time.Now()
				err := b.bootOne(ctx, r.url, "1", source)
				through = append(through, time.Since(began))
				return errors.Join(err, b.stopOne(ctx, r.url, "1", source))
			},
			func() error {
				began := time.Now()
				i, err := b.direct(ctx)
				if err != nil {
					return err
				}
				err = b.live.running(ctx, i.Name)
				direct = append(direct, time.Since(began))
				return errors.Join(err, b.client.Delete(ctx, i))
			},
		}
		if err := b.inTurns(ctx, n, turns); err != nil {
			return nil, err
		}
	}
	through, direct = through[2:], direct[2:]
	return []figure{
		{What: "boot to Running, p50", Unit: "ms", API: rank(through, 50), Direct: rank(direct, 50), Ratio: rank(through, 50) / rank(direct, 50), Limit: 1.15},
		{What: "boot to Running, p90", Unit: "ms", API: rank(through, 90), Direct: rank(direct, 90), Ratio: rank(through, 90) / rank(direct, 90)},
	}, nil
}

// together is how many players boot at a time in scenario eight.
const together = 8

// eight lets as many players boot at a time, by turns through berg-api and directly.
func eight(ctx context.Context, b *bench) ([]figure, error) {
	r, err := b.startReplica(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Kill()
	if err := b.register(ctx, r.url, "8"); err != nil {
		return nil, err
	}
	all := func(one func(n int) error) (time.Duration, error) {
		errs := make([]error, together)
		var wait sync.WaitGroup
		began := time.Now()
		for n := range together {
			wait.Go(func() { errs[n] = one(n) })
		}
		wait.Wait()
		return time.Since(began), errors.Join(errs...)
	}
	var through, direct []time.Duration
	for round := range b.rounds {
		turns := []func() error{
			func() error {
				took, err := all(func(n int) error { return b.bootOne(ctx, r.url, "8", fmt.Sprint(n)) })
				through = append(through, took)
				_, stopped := all(func(n int) error { return b.stopOne(ctx, r.url, "8", fmt.Sprint(n)) })
				return errors.Join(err, stopped)
			},
			func() error {
				var mu sync.Mutex
				var made []*bergv1.ChallengeInstance
				took, err := all(func(int) error {
					i, err := b.direct(ctx)
					if err != nil {
						return err
					}
					mu.Lock()
					made = append(made, i)
					mu.Unlock()
					return b.live.running(ctx, i.Name)
				})
				direct = append(direct, took)
				for _, i := range made {
					err = errors.Join(err, b.client.Delete(ctx, i))
				}
				return err
			},
		}
		if err := b.inTurns(ctx, round, turns); err != nil {
			return nil, err
		}
	}
	return []figure{{
		What: "eight boots together, until all run, p50", Unit: "ms",
		API: rank(through, 50), Direct: rank(direct, 50), Ratio: rank(through, 50) / rank(direct, 50), Limit: 1.3,
	}}, nil
}

// players is how many of them restart their instance at a time in scenario restarts.
const players = 16

// restarts lets players restart over two replicas in turns, one of which is killed in the middle. A player whose
// connection is cut asks again, at the other one.
func restarts(ctx context.Context, b *bench) ([]figure, error) {
	var two []*replica
	for range 2 {
		r, err := b.startReplica(ctx)
		if err != nil {
			return nil, err
		}
		defer r.Kill()
		two = append(two, r)
	}
	if err := b.register(ctx, two[0].url, "r"); err != nil {
		return nil, err
	}
	var turn, done, cut, wrong atomic.Int64
	// send is one call, which is sent again where the connection was cut.
	send := func(method, path, body string) (status int, answer string, again bool, err error) {
		first := int(turn.Add(1))
		for attempt := range 4 {
			at := two[(first+attempt)%2].url
			if status, answer, err = b.call(ctx, method, at+path, body); err == nil {
				return status, answer, again, nil
			}
			again = true
			cut.Add(1)
		}
		return 0, "", again, err
	}
	errs := make([]error, players)
	took := make([][]time.Duration, players)
	var wait sync.WaitGroup
	for p := range players {
		wait.Go(func() {
			source := fmt.Sprint("player-", p)
			one := "/api/v1/instance/r/" + source
			for done.Load() < int64(b.restarts) {
				began := time.Now()
				status, answer, again, err := send(http.MethodPost, "/api/v1/instance", fmt.Sprintf(`{"challengeId":"r","sourceId":%q}`, source))
				if err == nil && again && status == http.StatusConflict {
					// The first attempt had started it before its connection was cut.
					status, answer, _, err = send(http.MethodGet, one, "")
				}
				if err != nil {
					errs[p] = err
					return
				}
				took[p] = append(took[p], time.Since(began))
				var i struct{ ChallengeID, SourceID, ConnectionInfo string }
				if status != http.StatusOK || json.Unmarshal([]byte(answer), &i) != nil || i.SourceID != source || i.ChallengeID != "r" || i.ConnectionInfo == "" {
					wrong.Add(1)
				}
				status, _, again, err = send(http.MethodDelete, one, "")
				if err != nil {
					errs[p] = err
					return
				}
				if status != http.StatusOK && (!again || status != http.StatusNotFound) {
					wrong.Add(1)
				}
				if done.Add(1) == int64(b.restarts/2) {
					two[1].Kill()
				}
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := b.live.empty(ctx); err != nil {
		return nil, err
	}
	return []figure{
		{What: fmt.Sprintf("restarts over two replicas, one killed after %d of them", b.restarts/2), API: float64(done.Load())},
		{What: "of these, answers that were wrong", API: float64(wrong.Load())},
		{What: "of these, players who had two instances", API: float64(len(b.live.doubled))},
		{What: "calls that were cut, and sent again", API: float64(cut.Load())},
		{What: fmt.Sprintf("boot of %d players together, p50", players), Unit: "ms", API: rank(slices.Concat(took...), 50)},
	}, nil
}

// writers is how many clients fill the cluster in scenario crowd.
const writers = 128

// crowd reads of many registrations with an instance each. The operator does not run: how its instances come to run is
// not what is measured.
func crowd(ctx context.Context, b *bench) ([]figure, error) {
	b.operator.Kill()
	b.operator = nil
	first, err := b.startReplica(ctx, "BOOT_WAIT=1s")
	if err != nil {
		return nil, err
	}
	if err := b.each(b.crowd, func(n int) error {
		id, source := fmt.Sprint("c", n), fmt.Sprint("s", n)
		if err := b.register(ctx, first.url, id); err != nil {
			return err
		}
		status, answer, err := b.call(ctx, http.MethodPost, first.url+"/api/v1/instance", fmt.Sprintf(`{"challengeId":%q,"sourceId":%q}`, id, source))
		if err != nil || status >= 500 && status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
			return fmt.Errorf("boot %d: %d %s %w", n, status, answer, err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var list bergv1.ChallengeInstanceList
	if err := b.client.List(ctx, &list, client.InNamespace(arena)); err != nil {
		return nil, err
	}
	if len(list.Items) != b.crowd {
		return nil, fmt.Errorf("there are %d instances, not %d", len(list.Items), b.crowd)
	}
	now := metav1.Now()
	if err := b.each(b.crowd, func(n int) error {
		i := &list.Items[n]
		i.Status.Phase, i.Status.StartedAt, i.Status.ReadyAt = bergv1.PhaseRunning, &now, &now
		i.Status.ExpiresAt = &metav1.Time{Time: now.Add(10 * time.Hour)}
		i.Status.Services = []bergv1.ServiceEndpoint{{Name: "web", Hostname: "node.example.com", Port: 30000, Protocol: "UDP"}}
		return b.client.Status().Update(ctx, i)
	}); err != nil {
		return nil, err
	}
	first.Kill()

	r, err := b.startReplica(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Kill()
	begin, used := b.recorded(), machine.CPU(r.PID())
	reads := b.rate * b.seconds
	took := make([]time.Duration, reads)
	var failed atomic.Int64
	began, pace := time.Now(), rate.NewLimiter(rate.Limit(b.rate), 64)
	slots := make(chan struct{}, 128)
	var wait sync.WaitGroup
	for n := range reads {
		if err := pace.Wait(ctx); err != nil {
			return nil, err
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			at := time.Now()
			k := (n * 7919) % b.crowd
			if _, err := b.do(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/instance/c%d/s%d", r.url, k, k), ""); err != nil {
				failed.Add(1)
			}
			took[n] = time.Since(at)
		})
	}
	wait.Wait()
	seconds := time.Since(began).Seconds()
	if n := failed.Load(); n > 0 {
		return nil, fmt.Errorf("%d of %d reads failed", n, reads)
	}
	perRead := (machine.CPU(r.PID()) - used) * 1e6 / float64(reads)
	asked, err := b.requested(begin)
	if err != nil {
		return nil, err
	}
	resident, most := memory(r.PID())
	return []figure{
		{What: fmt.Sprintf("reads in a second, of %d that are sent, with %d registrations and instances", b.rate, b.crowd), API: float64(reads) / seconds},
		{What: "CPU for a read", Unit: "µs", API: perRead, Limit: 150},
		{What: "a read, p50", Unit: "ms", API: rank(took, 50)},
		{What: "a read, p99", Unit: "ms", API: rank(took, 99)},
		{What: "requests to the API server during these reads", API: asked},
		{What: fmt.Sprintf("memory with %d registrations and instances", b.crowd), Unit: "MB", API: resident, Limit: 128},
		{What: "the same, at most since the start", Unit: "MB", API: most},
	}, nil
}

// each calls one for all numbers below n, by some writers.
func (b *bench) each(n int, one func(int) error) error {
	var next atomic.Int64
	errs := make([]error, writers)
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || errs[w] != nil {
					return
				}
				errs[w] = one(i)
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
