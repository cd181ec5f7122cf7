package jobs

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Work is all that is under way, and what has come of it. New makes one.
type Work struct {
	mu    sync.Mutex
	ctx   context.Context
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	all   map[key]*piece
	// turns has those of each kind: what waits for somebody who does not answer keeps nothing of
	// another kind waiting.
	turns  map[string]chan struct{}
	most   int
	limits map[string]int
}

type key struct {
	uid  types.UID
	kind string
}

type piece struct {
	// what tells one piece of a kind from the next.
	what   string
	cancel context.CancelFunc
	// begun: it has its turn.
	begun  bool
	done   bool
	result any
}

// New returns a Work that does so many pieces of a kind at the same time at most: of those that
// limits names as many as it says.
func New(most int, limits map[string]int) *Work {
	return &Work{all: map[key]*piece{}, turns: map[string]chan struct{}{}, most: most, limits: limits}
}

// turnsOf is called with the lock held.
func (w *Work) turnsOf(kind string) chan struct{} {
	if w.turns[kind] == nil {
		w.turns[kind] = make(chan struct{}, cmp.Or(w.limits[kind], w.most))
	}
	return w.turns[kind]
}

// Source takes requests to the queue of the controller that waits for results.
func (w *Work) Source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ctx, w.queue = ctx, queue
		return nil
	})
}

// Do returns the result of a piece of work of a kind, once it is done. It begins the work if it
// has not begun, or if what differs from the last time; of a kind only one piece is under way
// for a UID, and what is under way is completed first. When it is done, the controller is
// called with the name. Do is called by reconciliations alone.
func Do[T any](w *Work, uid types.UID, name, kind, what string, do func(context.Context) T) (result T, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := key{uid, kind}
	if p := w.all[k]; p != nil {
		if !p.done {
			return result, false
		}
		if p.what == what {
			return p.result.(T), true
		}
	}
	ctx, cancel := context.WithCancel(w.ctx)
	p := &piece{what: what, cancel: cancel}
	w.all[k] = p
	turns := w.turnsOf(kind)
	go func() {
		defer cancel()
		var got T
		select {
		case turns <- struct{}{}:
			if w.begin(ctx, p) {
				got = do(ctx)
			}
			<-turns
		case <-ctx.Done():
			// The operator stops, or nobody wants it any more.
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		p.done, p.result = true, got
		w.call(name, 0)
	}()
	return result, false
}

// begin tells that a piece has its turn, and reports whether somebody still wants it.
func (w *Work) begin(ctx context.Context, p *piece) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.begun = ctx.Err() == nil
	return p.begun
}

// Withdraw ends what a UID still waits for its turn with. What has begun is completed.
func (w *Work) Withdraw(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, p := range w.all {
		if k.uid == uid && !p.begun {
			p.cancel()
		}
	}
}

// Last returns the result of the last piece of a kind that is done, whatever it was.
func Last[T any](w *Work, uid types.UID, kind string) (result T, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.all[key{uid, kind}]; p != nil && p.done {
		return p.result.(T), true
	}
	return result, false
}

// Busy reports whether anything is under way for a UID.
func (w *Work) Busy(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, p := range w.all {
		if k.uid == uid && !p.done {
			return true
		}
	}
	return false
}

// Again forgets the result of a kind, so that the next Do begins anew.
func (w *Work) Again(uid types.UID, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.all[key{uid, kind}]; p != nil && p.done {
		delete(w.all, key{uid, kind})
	}
}

// Cancel has what is under way of a kind end early.
func (w *Work) Cancel(uid types.UID, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.all[key{uid, kind}]; p != nil {
		p.cancel()
	}
}

// Forget drops what is remembered of a UID that is gone.
func (w *Work) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, p := range w.all {
		if k.uid == uid {
			p.cancel()
			delete(w.all, k)
		}
	}
}

// Call has the controller look at a resource.
func (w *Work) Call(name string, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.call(name, after)
}

// call is made with the lock held. Before the controller has begun, it looks at everything anyway.
func (w *Work) call(name string, after time.Duration) {
	if w.queue != nil {
		w.queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, after)
	}
}
