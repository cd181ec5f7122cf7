package reach

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

// replicas are fake replicas of the gate, by their address.
type replicas struct {
	mu    sync.Mutex
	reply map[string]gateadmin.Served
	asked map[string]int
}

func newReplicas(w *Waiter, names ...string) *replicas {
	r := &replicas{reply: map[string]gateadmin.Served{}, asked: map[string]int{}}
	for _, name := range names {
		r.reply[name] = gateadmin.Served{Host: true, Pod: true}
	}
	w.asks.ask = func(_ context.Context, replica, _ string, _ Host) (gateadmin.Served, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked[replica]++
		got, answers := r.reply[replica]
		if !answers {
			return got, errors.New("connection refused")
		}
		return got, nil
	}
	return r
}

func (r *replicas) set(name string, to gateadmin.Served) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reply[name] = to
}

func (r *replicas) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[name]
}

func question(names ...string) Question {
	return Question{Namespace: "challenge-a", Hosts: []Host{{Name: "a.example.com", Connects: true}}, Replicas: names}
}

func TestEachReplicaOfTheGateIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(time.Second, clock.RealClock{}, nil)
		r := newReplicas(w, "a", "b", "c")
		r.set("b", gateadmin.Served{})
		requeued := make(chan struct{}, 9)
		answer := func(q Question) Answer { return w.Ask(one, "1", q, func() { requeued <- struct{}{} }) }
		if got := answer(question("a", "b")); !got.Pending {
			t.Fatalf("before an answer: %+v", got)
		}
		<-requeued
		if got := answer(question("a", "b")); got.Served || !strings.Contains(got.Problem, "b does not serve a host") || got.Unreached {
			t.Errorf("one replica does not serve it: %+v", got)
		}
		r.set("b", gateadmin.Served{Host: true})
		<-requeued
		if got := answer(question("a", "b")); got.Served || !strings.Contains(got.Problem, "b does not reach a pod") || !got.Unreached {
			t.Errorf("one replica does not reach the pod: %+v", got)
		}
		r.set("b", gateadmin.Served{Host: true, Pod: true})
		<-requeued
		if got := answer(question("a", "b")); !got.Served {
			t.Errorf("all serve it: %+v", got)
		}
		before := r.count("a")
		time.Sleep(time.Hour) //nolint:forbidigo // the time of the bubble
		if r.count("a") != before || len(requeued) > 0 {
			t.Error("the gate is asked after all have answered")
		}
		if got := answer(question("a", "b", "c")); !got.Pending {
			t.Errorf("a replica is added, and is not asked: %+v", got)
		}
		<-requeued
		if got := answer(question("a", "b", "c")); !got.Served || r.count("c") != 1 {
			t.Errorf("with the new replica: %+v", got)
		}
		w.Forget(one)
		if len(w.asks.asked) > 0 {
			t.Error("it is not forgotten")
		}
	})
}

// A node that is lost has replicas that are still called ready. Players reach them as little as the operator.
func TestASilentReplicaIsWaitedForUntilItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(time.Second, clock.RealClock{}, nil)
		newReplicas(w, "a")
		requeued := make(chan struct{}, 9)
		w.Ask(one, "1", question("a", "b"), func() { requeued <- struct{}{} })
		<-requeued
		for range 5 {
			time.Sleep(time.Minute) //nolint:forbidigo // the time of the bubble
			if got := w.Ask(one, "1", question("a", "b"), nil); got.Served || !strings.Contains(got.Problem, "b does not answer the operator: connection refused") {
				t.Fatalf("%+v", got)
			}
		}
		w.Ask(one, "1", question("a"), func() { requeued <- struct{}{} })
		<-requeued
		if got := w.Ask(one, "1", question("a"), nil); !got.Served {
			t.Errorf("it is gone: %+v", got)
		}
	})
}

// An operator outside of the cluster reaches no replica: the statuses of routes must do.
func TestAGateThatIsNotReachedDelaysFewInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(time.Second, clock.RealClock{}, nil)
		r := newReplicas(w)
		w.Ask(one, "1", question("a"), func() {})
		time.Sleep(time.Minute) //nolint:forbidigo // the time of the bubble
		if got := w.Ask(one, "1", question("a"), nil); got != (Answer{}) || r.count("a") != maxFailures {
			t.Errorf("after a minute: %+v, asked %d times", got, r.count("a"))
		}
		if got := w.Ask(two, "2", question("a"), nil); got != (Answer{}) {
			t.Errorf("the next one waits: %+v", got)
		}
		r.set("a", gateadmin.Served{Host: true, Pod: true})
		time.Sleep(2 * time.Minute) //nolint:forbidigo // the time of the bubble
		if got := w.Ask(two, "2", question("a"), func() {}); !got.Pending {
			t.Errorf("it is not tried again: %+v", got)
		}
		synctest.Wait()
		if got := w.Ask(two, "2", question("a"), nil); !got.Served {
			t.Errorf("%+v", got)
		}
	})
}

// More instances than slots wait: none of them is Running unasked.
func TestABurstIsAskedAboutCompletely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(time.Second, clock.RealClock{}, nil)
		var mu sync.Mutex
		asking, most := 0, 0
		w.asks.ask = func(context.Context, string, string, Host) (gateadmin.Served, error) {
			mu.Lock()
			asking++
			most = max(most, asking)
			mu.Unlock()
			time.Sleep(time.Second) //nolint:forbidigo // the time of the bubble
			mu.Lock()
			asking--
			mu.Unlock()
			return gateadmin.Served{Host: true, Pod: true}, nil
		}
		const starts = 3 * maxAsking
		var served sync.WaitGroup
		for n := range starts {
			key := types.NamespacedName{Namespace: "berg", Name: string(rune('a' + n))}
			served.Add(1)
			if got := w.Ask(key, "1", question("a"), served.Done); !got.Pending {
				t.Fatalf("instance %d: %+v", n, got)
			}
		}
		served.Wait()
		if most != maxAsking {
			t.Errorf("%d questions at a time", most)
		}
	})
}

func TestAnInstanceThatEndsIsNotAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(time.Second, clock.RealClock{}, nil)
		r := newReplicas(w, "a")
		r.set("a", gateadmin.Served{})
		w.Ask(one, "1", question("a"), func() {})
		time.Sleep(time.Second) //nolint:forbidigo // the time of the bubble
		w.Forget(one)
		synctest.Wait()
		before := r.count("a")
		time.Sleep(time.Hour) //nolint:forbidigo // the time of the bubble
		if r.count("a") != before {
			t.Error("it is asked about")
		}
		if w.asks.trust.testing || !w.asks.trust.proven {
			t.Errorf("trust: %+v", w.asks.trust)
		}
	})
}

// The question names the instance completely, and errors name no host.
func TestTheQuestion(t *testing.T) {
	var got url.Values
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.Query()
		_, _ = w.Write([]byte(`{"host":true,"pod":false}`))
	}))
	defer gate.Close()
	replica := strings.TrimPrefix(gate.URL, "http://")
	stage := newAskStage(clock.RealClock{})
	answer, err := stage.ask(t.Context(), replica, "challenge-a", Host{Name: "a.example.com"})
	if err != nil || answer != (gateadmin.Served{Host: true}) {
		t.Errorf("%+v, %v", answer, err)
	}
	want := url.Values{"host": {"a.example.com"}, "namespace": {"challenge-a"}, "wait": {"true"}, "connect": {"false"}}
	if got.Encode() != want.Encode() {
		t.Errorf("asked %v", got)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	notFound := httptest.NewServer(http.NotFoundHandler())
	defer notFound.Close()
	text := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a.example.com")) }))
	defer text.Close()
	for address, want := range map[string]string{
		closed.Addr().String(): "connection refused", strings.TrimPrefix(notFound.URL, "http://"): "status 404", strings.TrimPrefix(text.URL, "http://"): "not JSON", "a b": "",
	} {
		if _, err := stage.ask(t.Context(), address, "challenge-a", Host{Name: "a.example.com"}); err == nil || strings.Contains(err.Error(), "a.example.com") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
