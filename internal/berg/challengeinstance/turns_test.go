package challengeinstance

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestTurnsAreTakenOneAfterTheOther(t *testing.T) {
	var called []string
	q := &calls{add: func(r reconcile.Request) { called = append(called, r.Name) }}
	who := func(name string) turn { return turn{q, requestFor(name)} }
	var turns turns
	done, ok := turns.take("owner", who("first"), false)
	if !ok {
		t.Fatal("nobody works, and it is not its turn")
	}
	for _, name := range []string{"second", "third", "second"} {
		if _, ok := turns.take("owner", who(name), false); ok {
			t.Fatalf("%s works beside the first", name)
		}
	}
	for range 2 {
		if _, ok := turns.take("owner", who("begun"), true); ok {
			t.Fatal("the urgent one works beside the first")
		}
	}
	other, ok := turns.take("other owner", who("other"), false)
	if !ok {
		t.Fatal("another owner waits")
	}
	other()
	if len(called) > 0 {
		t.Fatalf("%v are called while the first works", called)
	}
	done()
	done() // once is enough
	for _, want := range []string{"begun", "second", "third"} {
		if called[len(called)-1] != want {
			t.Fatalf("%v are called, want %s last", called, want)
		}
		done, ok := turns.take("owner", who(want), false)
		if !ok {
			t.Fatalf("%s was called, and it is not its turn", want)
		}
		done()
	}
	if len(called) != 3 || len(turns.lines) > 0 || len(turns.called) > 0 {
		t.Errorf("%v were called; %d lines and %d called are left", called, len(turns.lines), len(turns.called))
	}
}

func TestTheTurnOfOneThatIsGoneIsTheNextOnes(t *testing.T) {
	var called []string
	q := &calls{add: func(r reconcile.Request) { called = append(called, r.Name) }}
	who := func(name string) turn { return turn{q, requestFor(name)} }
	var turns turns
	done, _ := turns.take("owner", who("first"), false)
	turns.take("owner", who("second"), false)
	turns.take("owner", who("third"), false)
	turns.absent(who("somebody"))
	done()
	turns.absent(who("second"))
	if !slices.Equal(called, []string{"second", "third"}) {
		t.Fatalf("%v are called", called)
	}
	turns.absent(who("third"))
	if len(turns.lines) > 0 || len(turns.called) > 0 {
		t.Errorf("%d lines and %d called are left", len(turns.lines), len(turns.called))
	}
}

// Whoever comes when, everybody has its turn, and no two of one owner have it at a time.
func TestNobodyIsForgotten(t *testing.T) {
	const owners, each, workers = 3, 50, 8
	queue := make(chan reconcile.Request, owners*each*4)
	q := &calls{add: func(r reconcile.Request) { queue <- r }}
	var turns turns
	var working [owners]atomic.Int64
	var left sync.WaitGroup
	left.Add(owners * each)
	var served sync.Map
	for range workers {
		go func() {
			for r := range queue {
				owner := int(r.Name[0] - '0')
				if r.Name[len(r.Name)-1] == '7' { // its instance is gone
					turns.absent(turn{q, r})
				} else {
					done, ok := turns.take(fmt.Sprint(owner), turn{q, r}, r.Name[len(r.Name)-1] == '3')
					if !ok {
						continue
					}
					if working[owner].Add(1) > 1 {
						t.Errorf("two work for owner %d", owner)
					}
					working[owner].Add(-1)
					done()
				}
				if _, again := served.LoadOrStore(r.Name, true); !again {
					left.Done()
				}
			}
		}()
	}
	for owner := range owners {
		for n := range each {
			queue <- requestFor(fmt.Sprintf("%d-%d", owner, n))
		}
	}
	left.Wait()
}

func TestWaitingIsByUID(t *testing.T) {
	var turns turns
	one, successor := candidate("one", 0).Instance, candidate("one", 9).Instance
	successor.UID = types.UID("another")
	turns.waits(one)
	if !turns.isWaiting(one) || turns.isWaiting(successor) {
		t.Error("one waits, and no other of its name")
	}
	turns.goesOn(one)
	if turns.isWaiting(one) {
		t.Error("it goes on, and waits")
	}
	turns.waits(one)
	turns.absent(turn{nil, requestFor(one.Name)})
	turns.absent(turn{nil, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: one.Namespace, Name: one.Name}}})
	if len(turns.waiting) > 0 {
		t.Error("one that is gone is remembered")
	}
}
