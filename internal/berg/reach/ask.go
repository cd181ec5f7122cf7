package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

const (
	// maxAsking is how many instances the gate is asked about at the same time. Others wait for a slot.
	maxAsking = 64
	// The gate answers as soon as it serves a host, or after a second. Then it is asked again, at intervals that grow.
	minAskInterval, maxAskInterval = 200 * time.Millisecond, 30 * time.Second
	// A replica that gives no answer for maxAnswerTime is not reached from here.
	maxAnswerTime = 5 * time.Second
)

// Question is what each replica of the gate is asked about an instance.
type Question struct {
	// Namespace of the instance: a route of another namespace may have the same host.
	Namespace string
	Hosts     []Host
	// Replicas are the addresses of the replicas that are ready.
	Replicas []string
}

// Host is a host name of an instance. Connects: the gate also connects to the pods behind it.
type Host struct {
	Name     string
	Connects bool
}

// Answer is what the replicas of the gate say about an instance. The zero value means that none is reached from here.
type Answer struct {
	// Pending: not all have answered yet. Served: each serves all hosts, and reaches their pods.
	Pending, Served bool
	// Problem says which replica does not. Unreached: it serves the hosts, and does not reach a pod.
	Problem   string
	Unreached bool
}

// askStage asks the replicas of the gate.
type askStage struct {
	clock clock.PassiveClock
	slots chan struct{}
	ask   func(ctx context.Context, replica, namespace string, host Host) (gateadmin.Served, error)

	mu    sync.Mutex
	asked map[types.NamespacedName]*asked
	trust trust
}

// asked is the question about an instance with its answer.
type asked struct {
	uid      types.UID
	question Question
	answer   Answer
	stop     context.CancelFunc
}

// newAskStage trusts the network at first: an operator that has just started must not let a burst of instances pass.
func newAskStage(passive clock.PassiveClock) *askStage {
	client := &http.Client{
		Timeout:       maxAnswerTime,
		Transport:     &http.Transport{MaxIdleConnsPerHost: maxAsking, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &askStage{
		clock: passive, slots: make(chan struct{}, maxAsking), asked: map[types.NamespacedName]*asked{}, trust: trust{proven: true},
		ask: func(ctx context.Context, replica, namespace string, host Host) (gateadmin.Served, error) {
			return ask(ctx, client, replica, namespace, host)
		},
	}
}

// find returns the answer to a question, and asks it if it is new.
func (s *askStage) find(key types.NamespacedName, uid types.UID, q Question, requeue func()) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.asked[key]; known != nil && known.uid == uid && known.question.equal(q) {
		return known.answer
	}
	s.stop(key)
	if !s.trust.begin(s.clock.Now()) {
		return Answer{}
	}
	// The context is not the one of the reconciliation, which ends before the first answer.
	ctx, stop := context.WithCancel(context.Background())
	a := &asked{uid: uid, question: q, answer: Answer{Pending: true}, stop: stop}
	s.asked[key] = a
	go s.keepAsking(ctx, a, requeue)
	return a.answer
}

func (q Question) equal(other Question) bool {
	return q.Namespace == other.Namespace && slices.Equal(q.Hosts, other.Hosts) && slices.Equal(q.Replicas, other.Replicas)
}

// forget ends the question about an instance.
func (s *askStage) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(key)
}

// stop is called with the lock held.
func (s *askStage) stop(key types.NamespacedName) {
	if known := s.asked[key]; known != nil {
		known.stop()
		delete(s.asked, key)
	}
}

// keepAsking asks until all replicas serve the instance, or none is reached from here, or the question is forgotten.
func (s *askStage) keepAsking(ctx context.Context, a *asked, requeue func()) {
	defer a.stop()
	for interval := minAskInterval; ; interval = min(2*interval, maxAskInterval) {
		got, heard := s.askAll(ctx, a.question)
		s.mu.Lock()
		// The question was replaced or the instance is gone: an answer to it says nothing about the network, and must not enqueue
		// anything.
		if ctx.Err() != nil {
			s.trust.skip()
			s.mu.Unlock()
			return
		}
		s.trust.end(heard, s.clock.Now())
		// No replica has ever answered, or none for a while. The zero answer lets the status of the route decide, so no instance
		// waits for an answer that cannot come.
		if !heard && !s.trust.proven {
			got = Answer{}
		}
		changed := got != a.answer
		a.answer = got
		s.mu.Unlock()
		if changed {
			requeue()
		}
		if got.Problem == "" {
			return
		}
		retry := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			retry.Stop()
			return
		case <-retry.C:
		}
	}
}

// askAll asks all replicas. heard reports whether one of them has answered.
func (s *askStage) askAll(ctx context.Context, q Question) (answer Answer, heard bool) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return Answer{}, false
	}
	answers, failures := make([]Answer, len(q.Replicas)), make([]error, len(q.Replicas))
	var all sync.WaitGroup
	for n, replica := range q.Replicas {
		all.Go(func() { answers[n], failures[n] = s.askReplica(ctx, replica, q) })
	}
	all.Wait()
	answer.Served = true
	for n, replica := range q.Replicas {
		switch err := failures[n]; {
		case err == nil && answers[n].Served:
			heard = true
		// A replica that answers and does not serve the instance is a fact. It counts before one that does not answer, which may be
		// gone.
		case err == nil:
			return answers[n], true
		case answer.Problem == "":
			answer = Answer{Problem: fmt.Sprintf("the gate at %s does not answer the operator: %v", replica, err)}
		}
	}
	return answer, heard
}

// askReplica asks one replica about each host.
func (s *askStage) askReplica(ctx context.Context, replica string, q Question) (Answer, error) {
	for _, host := range q.Hosts {
		got, err := s.ask(ctx, replica, q.Namespace, host)
		switch {
		case err != nil:
			return Answer{}, err
		case !got.Host:
			return Answer{Problem: fmt.Sprintf("the gate at %s does not serve a host of the instance yet", replica)}, nil
		case !got.Pod:
			return Answer{Problem: fmt.Sprintf("the gate at %s does not reach a pod of the instance", replica), Unreached: true}, nil
		}
	}
	return Answer{Served: true}, nil
}

// ask asks a replica about a host. Errors do not name it: they are for logs and conditions.
func ask(ctx context.Context, client *http.Client, replica, namespace string, host Host) (gateadmin.Served, error) {
	got, err := gateadmin.AskServed(ctx, client, replica,
		url.Values{"host": {host.Name}, "namespace": {namespace}, "wait": {"true"}, "connect": {fmt.Sprint(host.Connects)}})
	return got, withoutAddress(err)
}

// withoutAddress returns the cause of a failed request, without the port from which the replica was asked.
func withoutAddress(err error) error {
	var packet *net.OpError
	if errors.As(err, &packet) {
		return packet.Err
	}
	return err
}
