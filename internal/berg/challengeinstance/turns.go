package challengeinstance

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// turns lets one worker at a time work on the instances of an owner. No worker waits for
// its turn: one that would have to takes the instance of another owner, and the request
// is called when it is its turn. So an owner with hundreds of instances keeps one worker
// busy, and the others are for everybody else. The zero value is ready for use.
type turns struct {
	mu sync.Mutex
	// lines has those owners on whose instances somebody works, or for whom requests wait.
	lines map[string]*line
	// called are those who were called and have not come yet, with their owner.
	called map[turn]string
	// waiting are the instances of which the last look found that another of their owner
	// has precedence: see waits.
	waiting map[types.NamespacedName]types.UID
}

// turn is a request to one of the controllers that work on instances.
type turn struct {
	queue   *calls
	request reconcile.Request
}

type line struct {
	busy bool
	// urgent are called before others.
	urgent, others []turn
}

// calls takes requests back to the queue of their controller.
type calls struct {
	add func(reconcile.Request)
}

// take reports whether it is the turn of a request about an instance of an owner, and if
// so the turn ends when done is called. If not, the request is called when it is, and
// before others if it is urgent.
func (t *turns) take(owner string, who turn, urgent bool) (done func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.called, who)
	l := t.lines[owner]
	if l == nil {
		if t.lines == nil {
			t.lines = map[string]*line{}
		}
		l = &line{}
		t.lines[owner] = l
	}
	if l.busy {
		l.join(who, urgent)
		return nil, false
	}
	l.busy = true
	return sync.OnceFunc(func() { t.end(owner) }), true
}

// absent is to be called in place of take by a request whose instance is gone. It may
// have been its turn: then the next is called.
func (t *turns) absent(who turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, who.request.NamespacedName)
	owner, called := t.called[who]
	delete(t.called, who)
	if l := t.lines[owner]; called && l != nil && !l.busy {
		t.callNext(owner, l)
	}
}

func (t *turns) end(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[owner]
	l.busy = false
	t.callNext(owner, l)
}

// callNext calls one. Who comes by itself meanwhile is not kept waiting, and calls the
// next one in its turn.
func (t *turns) callNext(owner string, l *line) {
	next, ok := l.leave()
	if !ok {
		delete(t.lines, owner)
		return
	}
	if t.called == nil {
		t.called = map[turn]string{}
	}
	t.called[next] = owner
	next.queue.add(next.request)
}

func (l *line) join(who turn, urgent bool) {
	switch {
	case slices.Contains(l.urgent, who):
	case !urgent && slices.Contains(l.others, who):
	case urgent:
		l.urgent = append(l.urgent, who)
	default:
		l.others = append(l.others, who)
	}
}

func (l *line) leave() (next turn, ok bool) {
	from := &l.urgent
	if len(*from) == 0 {
		from = &l.others
	}
	if len(*from) == 0 {
		return turn{}, false
	}
	next = (*from)[0]
	*from = slices.Delete(*from, 0, 1)
	return next, true
}

// waits notes that an instance was told for whom it waits. Until goesOn only what may put
// it at the head of its owner's instances concerns it, or that puts another before it: not
// what happens in the namespace of the one that runs, and not each step of that one.
func (t *turns) waits(i client.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = map[types.NamespacedName]types.UID{}
	}
	t.waiting[client.ObjectKeyFromObject(i)] = i.GetUID()
}

// goesOn is to be called before anything is written for an instance that waited.
func (t *turns) goesOn(i client.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, client.ObjectKeyFromObject(i))
}

// isWaiting is not to be read from a status: the cache may show that of yesterday while
// the events of the first objects come in.
func (t *turns) isWaiting(i client.Object) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	uid, ok := t.waiting[client.ObjectKeyFromObject(i)]
	return ok && uid == i.GetUID()
}

// source takes calls to the queue of the controller that it is given to.
func (c *calls) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		c.add = queue.Add
		return nil
	})
}
