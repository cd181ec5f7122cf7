package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// life is what was seen of an instance from the outside, and when. A zero time
// means not yet.
type life struct {
	key       types.NamespacedName
	owner     string
	namespace string
	challenge string
	// Sent is when its creation was asked for, created when the API server said yes.
	sent, created time.Time
	starting      time.Time
	running       time.Time
	// podSeen is when its first pod was there, podRuns when the containers of that ran.
	podSeen, podRuns time.Time
	// connected is when a connection to its node port succeeded, see connect.go.
	connected time.Time
	// deleted is when the API server accepted a deletion that we asked for.
	deleted time.Time
	// ending is when the instance was seen to be deleted, namespaceEnding its
	// namespace.
	ending          time.Time
	namespaceEnding time.Time
	gone            time.Time
}

func reachedStarting(l *life) bool        { return !l.starting.IsZero() }
func reachedStartingOrEnd(l *life) bool   { return reachedStarting(l) || !l.ending.IsZero() }
func reachedRunning(l *life) bool         { return !l.running.IsZero() }
func reachedNamespaceEnding(l *life) bool { return !l.namespaceEnding.IsZero() }
func reachedGone(l *life) bool            { return !l.gone.IsZero() }

// tracker watches instances and what the bare client has to wait for.
type tracker struct {
	mu          sync.Mutex
	lives       map[string]*life // by name
	byNamespace map[string]*life
	// podRuns and namespaceGone are called once for each namespace; set before
	// anything is created.
	podRuns, namespaceGone func(namespace string)
	ran                    map[string]bool
	// seen, unless nil, gets each instance with what stripInstance keeps.
	seen func(*bergv1.ChallengeInstance)
}

func track(ctx context.Context, restConfig *rest.Config, scheme *runtime.Scheme) (*tracker, error) {
	t := &tracker{lives: map[string]*life{}, byNamespace: map[string]*life{}, ran: map[string]bool{}}
	ours := labels.SelectorFromSet(labels.Set{bergv1.LabelManagedBy: bergv1.ManagedBy})
	namespaces := &metav1.PartialObjectMetadata{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	c, err := cache.New(restConfig, cache.Options{
		Scheme: scheme,
		ByObject: map[client.Object]cache.ByObject{
			&bergv1.ChallengeInstance{}: {Transform: stripInstance},
			namespaces:                  {Label: ours},
			&corev1.Pod{}:               {Label: ours, Transform: stripPod},
		},
	})
	if err != nil {
		return nil, err
	}
	for object, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&bergv1.ChallengeInstance{}: on(t.instance, t.instanceGone),
		namespaces:                  on(t.namespace, t.namespaceIsGone),
		&corev1.Pod{}:               on(t.pod, func(*corev1.Pod) {}),
	} {
		informer, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	go func() { _ = c.Start(ctx) }() // ends with ctx, without an error
	c.WaitForCacheSync(ctx)
	return t, nil
}

// on calls seen for what is there, and gone for what is not any more.
func on[T any](seen, gone func(T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen(o.(T)) },
		UpdateFunc: func(_, o any) { seen(o.(T)) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			gone(o.(T))
		},
	}
}

// expect makes the tracker look out for an instance that is going to be created.
func (t *tracker) expect(l *life) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lives[l.key.Name] = l
	t.byNamespace[l.namespace] = l
}

// set changes what is known of an instance.
func (t *tracker) set(modify func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	modify()
}

func (t *tracker) instance(i *bergv1.ChallengeInstance) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen != nil {
		t.seen(i)
	}
	l := t.lives[i.Name]
	if l == nil {
		return
	}
	switch i.Status.Phase {
	case bergv1.PhaseRunning:
		first(&l.running, now)
		first(&l.starting, now) // two changes in one event
	case bergv1.PhaseStarting:
		first(&l.starting, now)
	}
	if i.DeletionTimestamp != nil {
		first(&l.ending, now)
	}
}

func (t *tracker) instanceGone(i *bergv1.ChallengeInstance) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lives[i.Name]; l != nil {
		first(&l.ending, now)
		first(&l.gone, now)
		delete(t.lives, i.Name)
		delete(t.byNamespace, l.namespace)
		delete(t.ran, l.namespace)
	}
}

func (t *tracker) namespace(ns *metav1.PartialObjectMetadata) {
	if ns.DeletionTimestamp == nil {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byNamespace[ns.Name]; l != nil {
		first(&l.namespaceEnding, now)
	}
}

func (t *tracker) namespaceIsGone(ns *metav1.PartialObjectMetadata) {
	t.namespace(ns)
	t.namespaceGone(ns.Name)
}

func (t *tracker) pod(p *corev1.Pod) {
	now, runs := time.Now(), len(p.Status.ContainerStatuses) > 0
	for _, s := range p.Status.ContainerStatuses {
		runs = runs && s.State.Running != nil
	}
	t.mu.Lock()
	if l := t.byNamespace[p.Namespace]; l != nil {
		first(&l.podSeen, now)
		if runs {
			first(&l.podRuns, now)
		}
	}
	known := t.ran[p.Namespace] || !runs
	if runs {
		t.ran[p.Namespace] = true
	}
	t.mu.Unlock()
	if !known {
		t.podRuns(p.Namespace)
	}
}

func first(at *time.Time, now time.Time) {
	if at.IsZero() {
		*at = now
	}
}

// stripInstance keeps what is looked at, so that this program does not weigh more
// than what it measures.
func stripInstance(o any) (any, error) {
	if i, ok := o.(*bergv1.ChallengeInstance); ok {
		i.ManagedFields = nil
		i.Spec = bergv1.ChallengeInstanceSpec{}
		i.Status = bergv1.ChallengeInstanceStatus{
			Phase: i.Status.Phase, ClaimedBy: i.Status.ClaimedBy, PreparedFrom: i.Status.PreparedFrom, Namespace: i.Status.Namespace,
		}
	}
	return o, nil
}

func stripPod(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		p.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, ResourceVersion: p.ResourceVersion}
		p.Spec = corev1.PodSpec{}
		p.Status = corev1.PodStatus{ContainerStatuses: p.Status.ContainerStatuses}
	}
	return o, nil
}
