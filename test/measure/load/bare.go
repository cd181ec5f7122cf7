package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// bareAgent is how the bare client calls itself.
const bareAgent = "berg-load-bare-client"

// bareClient makes the requests that the operator makes for an instance, in the same
// order, with the same concurrency, and does nothing else: it knows in advance what to
// write, reads nothing, compares nothing, and keeps no cache. What it cannot undercut is
// the API server.
//
// It has two queues, one of them for expiries, with as many workers each as the operator
// has for starts. The operator divides those of the second between expiries and deletions.
// In the first, what makes an instance Running goes before all else, as in the operator's.
type bareClient struct {
	client   client.Client
	template *template
	build    *queue
	expire   *queue

	mu        sync.Mutex
	instances map[string]*bareInstance // by namespace
}

type bareInstance struct {
	*written
	live *life
	key  types.NamespacedName
	uid  types.UID
	// started is closed when all is written, since is when that began.
	started chan struct{}
	since   time.Time
	// ending is set before the instance is deleted.
	ending atomic.Bool
}

func newBareClient(ctx context.Context, account *rest.Config, scheme *runtime.Scheme, t *tracker, workers int) (*bareClient, error) {
	config := rest.CopyConfig(account)
	config.UserAgent = bareAgent
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	b := &bareClient{
		client: c, instances: map[string]*bareInstance{},
		build: newQueue(ctx, workers), expire: newQueue(ctx, workers),
	}
	t.podRuns = func(namespace string) { b.later(namespace, b.build.addFirst, b.finishStart) }
	t.namespaceGone = func(namespace string) { b.later(namespace, b.build.add, b.finishEnd) }
	return b, nil
}

func (b *bareClient) learn(ctx context.Context, c client.Client, key types.NamespacedName) error {
	t, err := learnTemplate(ctx, c, key)
	b.template = t
	return err
}

// prepare makes ready what is to be written for an instance: the operator's own
// planning is what this leaves out.
func (b *bareClient) prepare(l *life, created *bergv1.ChallengeInstance) (*bareInstance, error) {
	w, err := b.template.fill(created)
	if err != nil {
		return nil, err
	}
	i := &bareInstance{written: w, live: l, key: l.key, uid: created.UID, started: make(chan struct{})}
	b.mu.Lock()
	b.instances[l.namespace] = i
	b.mu.Unlock()
	return i, nil
}

// start builds an instance.
func (b *bareClient) start(ctx context.Context, i *bareInstance) error {
	i.since = time.Now()
	if err := b.patch(ctx, i, fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, bergv1.Finalizer), false); err != nil {
		return err
	}
	if err := b.patch(ctx, i, i.creating, true); err != nil {
		return err
	}
	for _, step := range i.steps() {
		if err := b.create(ctx, step); err != nil {
			return err
		}
	}
	defer close(i.started)
	return b.patch(ctx, i, i.starting, true)
}

// create writes objects concurrently.
func (b *bareClient) create(ctx context.Context, objects []client.Object) error {
	return inParallel(len(objects), objects, func(o client.Object) error {
		if err := b.client.Create(ctx, o, client.FieldOwner(bareAgent)); err != nil {
			return fmt.Errorf("create %T: %w", o, err)
		}
		return nil
	})
}

func (b *bareClient) finishStart(ctx context.Context, i *bareInstance) error {
	<-i.started // a worker is at it
	err := b.patch(ctx, i, i.running, true)
	if i.ending.Load() {
		return client.IgnoreNotFound(err)
	}
	return err
}

// timeOut ends an instance whose time is over.
func (b *bareClient) timeOut(ctx context.Context, i *bareInstance) error {
	i.ending.Store(true)
	reason := fmt.Appendf(nil, `{"spec":{"terminationReason":%q}}`, bergv1.TerminationTimeout)
	if err := b.patch(ctx, i, reason, false); err != nil {
		return err
	}
	instance := &bergv1.ChallengeInstance{}
	instance.Namespace, instance.Name = i.key.Namespace, i.key.Name
	if err := b.client.Delete(ctx, instance, client.Preconditions{UID: &i.uid}); err != nil {
		return err
	}
	b.build.add(func(ctx context.Context) error { return b.end(ctx, i) })
	return nil
}

// end takes down what belongs to an instance that is being deleted.
func (b *bareClient) end(ctx context.Context, i *bareInstance) error {
	if err := b.client.Delete(ctx, i.objects[0]); err != nil {
		return err
	}
	return b.patch(ctx, i, i.terminating, true)
}

func (b *bareClient) finishEnd(ctx context.Context, i *bareInstance) error {
	b.mu.Lock()
	delete(b.instances, i.live.namespace)
	b.mu.Unlock()
	if err := b.patch(ctx, i, i.over, true); err != nil {
		return err
	}
	return b.patch(ctx, i, []byte(`{"metadata":{"finalizers":null}}`), false)
}

// later queues a step of the instance of a namespace, if it is the bare client's.
func (b *bareClient) later(namespace string, add func(task), step func(context.Context, *bareInstance) error) {
	if i := b.instance(namespace); i != nil {
		add(func(ctx context.Context) error { return step(ctx, i) })
	}
}

// timeOutLater queues the end of an instance whose time is over.
func (b *bareClient) timeOutLater(i *bareInstance) {
	b.expire.add(func(ctx context.Context) error { return b.timeOut(ctx, i) })
}

// instance returns that of a namespace, nil if there is none.
func (b *bareClient) instance(namespace string) *bareInstance {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.instances[namespace]
}

// failed returns what has gone wrong so far.
func (b *bareClient) failed() error { return errors.Join(b.build.failed(), b.expire.failed()) }

// patch sends a merge patch of the instance or of its status. The version is not
// compared, because there is no other writer.
func (b *bareClient) patch(ctx context.Context, i *bareInstance, data []byte, status bool) error {
	target := &bergv1.ChallengeInstance{}
	target.Namespace, target.Name = i.key.Namespace, i.key.Name
	patch := client.RawPatch(types.MergePatchType, data)
	var err error
	if status {
		err = b.client.Status().Patch(ctx, target, patch, client.FieldOwner(bareAgent))
	} else {
		err = b.client.Patch(ctx, target, patch, client.FieldOwner(bareAgent))
	}
	if err != nil {
		return fmt.Errorf("patch %s: %w", i.key.Name, err)
	}
	return nil
}

// conditionsOf returns the conditions of a status in JSON.
func conditionsOf(status string) json.RawMessage {
	var s struct {
		Conditions json.RawMessage `json:"conditions"`
	}
	if err := json.Unmarshal([]byte(status), &s); err != nil || s.Conditions == nil {
		return json.RawMessage("[]")
	}
	return s.Conditions
}

// task is a step of an instance.
type task func(context.Context) error

// queue is a queue without bounds and its workers, which end with their context.
type queue struct {
	mu     sync.Mutex
	filled *sync.Cond
	// first go before tasks.
	first, tasks []task
	errs         []error
}

func newQueue(ctx context.Context, workers int) *queue {
	q := &queue{}
	q.filled = sync.NewCond(&q.mu)
	context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.filled.Broadcast()
	})
	for range workers {
		go q.work(ctx)
	}
	return q
}

func (q *queue) add(t task)      { q.put(&q.tasks, t) }
func (q *queue) addFirst(t task) { q.put(&q.first, t) }

func (q *queue) put(to *[]task, t task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	*to = append(*to, t)
	q.filled.Signal()
}

func (q *queue) work(ctx context.Context) {
	for {
		q.mu.Lock()
		for len(q.first)+len(q.tasks) == 0 && ctx.Err() == nil {
			q.filled.Wait()
		}
		if ctx.Err() != nil {
			q.mu.Unlock()
			return
		}
		from := &q.first
		if len(q.first) == 0 {
			from = &q.tasks
		}
		next := (*from)[0]
		*from = (*from)[1:]
		q.mu.Unlock()
		if err := next(ctx); err != nil {
			q.mu.Lock()
			q.errs = append(q.errs, err)
			q.mu.Unlock()
		}
	}
}

func (q *queue) failed() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return errors.Join(q.errs[:min(len(q.errs), 3)]...)
}
