package challengeinstance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/queue"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// queueing is the queue of the instances that wait for room. What it knows it is told by the
// events of the cache, and once by the API server.
type queueing struct {
	*queue.Queue
	mu sync.Mutex
	// listed: what the predecessor of this process may have started a moment ago is known.
	listed bool
}

// errUnseen says that an instance may not go before the queue knows who is before it. It is
// called when that is so.
var errUnseen = fmt.Errorf("the queue was not told of the instance yet: %w", reconcile.ErrDeferred)

func (r *Reconciler) openQueue(mgr ctrl.Manager) {
	r.queue.Queue = queue.New(r.Config.Challenge.MaxInstances)
	lengths.watch(r.queue.Waiting, mgr.Elected())
	headAge.Watch(func(context.Context) (float64, error) {
		return maxWaiting(r.queue.Waiting(), r.Clock.Now()).Seconds(), nil
	}, mgr.Elected())
}

// admit lets an instance that was not started wait if there is no room for it: nothing is built
// of it then, and its time does not run. That it may start is not written down by itself: its
// start is. What holds room is in the cluster for every successor to see.
func (r *Reconciler) admit(ctx context.Context, out *status.Outcome) error {
	instance, cfg := out.Instance, r.Config.Challenge
	if instance.Status.InstanceID != "" {
		return nil
	}
	if out.Problem != nil {
		r.look(r.queue.Aside(instance.UID))
		return nil
	}
	bound := boundOf(out.Challenge)
	r.look(r.queue.Limit(out.Key, bound))
	me := r.entryOf(instance)
	if cfg.MaxInstances == 0 && bound.Limit == 0 {
		r.queue.Take(me)
		return nil
	}
	if err := r.listStarted(ctx); err != nil {
		return err
	}
	answer := r.queue.Ask(me)
	switch {
	case answer.Unseen:
		return errUnseen
	case answer.Go:
		out.Bounded = true
		return nil
	}
	out.Problem = status.QueuedProblem(out.Candidate, cfg)
	if answer.Head {
		reconcile.Normal(r.Events, instance, bergv1.ReasonNextInQueue, actionCreate, fmt.Sprintf(
			"This instance is the first that waits of Challenge %s: it starts when there is room", out.Key))
	}
	return nil
}

// notStarted gives back the room of an instance whose start was certainly not written.
func (r *Reconciler) notStarted(instance *bergv1.ChallengeInstance, err error) {
	if errors.Is(err, outcome.ErrGone) {
		r.look(r.queue.Release(instance.UID))
		return
	}
	switch outcome.CauseOf(err) {
	case outcome.Conflict, outcome.Rejected, outcome.NotInstalled, outcome.NotServed:
		r.look(r.queue.Release(instance.UID))
	default: // it may have been; another try tells
	}
}

// listStarted asks the API server, once, which instances were started. The cache of a process
// that has just taken over may be behind what its predecessor wrote.
func (r *Reconciler) listStarted(ctx context.Context) error {
	r.queue.mu.Lock()
	defer r.queue.mu.Unlock()
	if r.queue.listed {
		return nil
	}
	r.queue.Listing()
	var all []queue.Sight
	var version uint64
	for page := ""; ; {
		var some bergv1.ChallengeInstanceList
		if err := r.Live.List(ctx, &some, client.Limit(instancesPerPage), client.Continue(page)); err != nil {
			return fmt.Errorf("look which instances were started: %w", err)
		}
		for n := range some.Items {
			all = append(all, r.sightOf(&some.Items[n]))
		}
		version = max(version, versionOf(some.ResourceVersion))
		if page = some.Continue; page == "" {
			break
		}
	}
	r.queue.Begin(all, version)
	r.queue.listed = true
	return nil
}

// look has instances looked at.
func (r *Reconciler) look(keys []types.NamespacedName) {
	for _, key := range keys {
		r.calls.add(ctrl.Request{NamespacedName: key})
	}
}

// placesInQueue tells the queue of every change of an instance, and has those looked at that it
// calls then. It comes before everything that is decided by the queue: see errUnseen.
func (r *Reconciler) placesInQueue() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			addAll(q, r.queue.See(r.sightOf(e.Object.(*bergv1.ChallengeInstance))))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				addAll(q, r.queue.Gone(e.ObjectOld.GetUID()))
			}
			addAll(q, r.queue.See(r.sightOf(e.ObjectNew.(*bergv1.ChallengeInstance))))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			addAll(q, r.queue.Gone(e.Object.GetUID()))
		},
	}
}

// roomOfChallenges tells the queue how many instances of a Challenge may exist, and that those
// may be possible now which were not. They wait in their order again before the first of them
// is looked at.
func (r *Reconciler) roomOfChallenges() handler.EventHandler {
	changed := func(q workqueue.TypedRateLimitingInterface[ctrl.Request], o client.Object, bound queue.Bound) {
		key := client.ObjectKeyFromObject(o)
		addAll(q, r.queue.Reopen(key))
		addAll(q, r.queue.Limit(key, bound))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			changed(q, e.Object, boundOf(e.Object.(*bergv1.Challenge)))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			changed(q, e.ObjectNew, boundOf(e.ObjectNew.(*bergv1.Challenge)))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			changed(q, e.Object, queue.Bound{})
		},
	}
}

func addAll(q workqueue.TypedRateLimitingInterface[ctrl.Request], keys []types.NamespacedName) {
	for _, key := range keys {
		q.Add(ctrl.Request{NamespacedName: key})
	}
}

func (r *Reconciler) entryOf(i *bergv1.ChallengeInstance) queue.Entry {
	return queue.Entry{
		UID: i.UID, Key: client.ObjectKeyFromObject(i), Challenge: r.challengeKey(i), Created: i.CreationTimestamp.UTC(),
		GivesWay: i.Labels[bergv1.LabelCheck] != "",
	}
}

func (r *Reconciler) sightOf(i *bergv1.ChallengeInstance) queue.Sight {
	return queue.Sight{
		Entry: r.entryOf(i),
		// It is written before the first object of an instance, and stays until that is gone.
		Holds: i.Status.InstanceID != "",
		// What terminates ends without having been started.
		Live: status.MayContend(i), Version: versionOf(i.ResourceVersion),
	}
}

// versionOf is a resource version as a number, which those of one kind are ordered by.
func versionOf(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func boundOf(c *bergv1.Challenge) queue.Bound {
	return queue.Bound{Created: c.CreationTimestamp.UTC(), Generation: c.Generation, Limit: int(max(0, c.Spec.MaxInstances))}
}

var (
	lengths = &queueLengths{desc: prometheus.NewDesc("berg_challengeinstance_queue_length",
		"Instances that wait until others have ended, because as many exist as may. Only the leader reports it.", []string{labelChallenge}, nil)}
	headAge = gauge.NewNumber("berg_challengeinstance_queue_head_seconds",
		"How long ago the oldest instance was created that waits until others have ended, 0 if none waits. Only the leader reports it.")
)

func init() { metrics.Registry.MustRegister(lengths, headAge) }

// queueLengths tells by Challenge how many instances wait.
type queueLengths struct {
	desc *prometheus.Desc
	view atomic.Pointer[queueView]
}

type queueView struct {
	waiting func() map[types.NamespacedName]queue.Waiting
	elected <-chan struct{}
}

func (l *queueLengths) watch(waiting func() map[types.NamespacedName]queue.Waiting, elected <-chan struct{}) {
	l.view.Store(&queueView{waiting, elected})
}

// Describe implements prometheus.Collector.
func (l *queueLengths) Describe(ch chan<- *prometheus.Desc) { ch <- l.desc }

// Collect implements prometheus.Collector.
func (l *queueLengths) Collect(ch chan<- prometheus.Metric) {
	v := l.view.Load()
	if v == nil {
		return
	}
	select {
	case <-v.elected:
	default:
		return
	}
	for name, n := range lengthsOf(v.waiting()) {
		ch <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, float64(n), name)
	}
}

// lengthsOf counts by the name of the Challenge, those with the longest queues first, and what is
// beyond the bound of the label as one.
func lengthsOf(waiting map[types.NamespacedName]queue.Waiting) map[string]int {
	byName := map[string]int{}
	for challenge, w := range waiting {
		byName[challenge.Name] += w.Number
	}
	if len(byName) <= maxChallenges {
		return byName
	}
	type length struct {
		name string
		n    int
	}
	var all []length
	for name, n := range byName {
		all = append(all, length{name, n})
	}
	slices.SortFunc(all, func(a, b length) int { return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name)) })
	shown := map[string]int{}
	for i, l := range all {
		name := l.name
		if i >= maxChallenges-1 {
			name = otherChallenges
		}
		shown[name] += l.n
	}
	return shown
}

func maxWaiting(waiting map[types.NamespacedName]queue.Waiting, now time.Time) (maxAge time.Duration) {
	for _, w := range waiting {
		maxAge = max(maxAge, now.Sub(w.Oldest))
	}
	return maxAge
}
