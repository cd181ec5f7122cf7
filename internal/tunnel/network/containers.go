package network

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
)

// settleTime is how long changes of containers are collected before a network is reconciled.
const settleTime = time.Second

// containers knows the containers in the namespaces of networks. Each network has its own watch, so that the API server
// sends no other pods of the cluster, and none are kept. The lock guards the map. The caches of the networks have their own
// locks, and lists are made without this one.
type containers struct {
	mgr   ctrl.Manager
	mu    sync.Mutex
	ctx   context.Context
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	all   map[string]*followed // by the name of the network
}

type followed struct {
	uid  types.UID
	stop context.CancelFunc
	pods cache.Cache
	// synced reports whether the first list is complete.
	synced func() bool
}

func newContainers(mgr ctrl.Manager) *containers {
	return &containers{mgr: mgr, all: map[string]*followed{}}
}

func (c *containers) source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		// The controller waits for this before its first reconciliation, so that follow always has both.
		c.ctx, c.queue = ctx, queue
		return nil
	})
}

// follow starts the watch of a network, unless it runs.
func (c *containers) follow(n *tunnelv1.ContainerNetwork, in string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.all[n.Name]; f != nil {
		if f.uid == n.UID {
			return nil
		}
		// The network was deleted and created again: the pods of the new one may be in another namespace.
		f.stop()
	}
	pods, err := cache.New(c.mgr.GetConfig(), cache.Options{
		HTTPClient:        c.mgr.GetHTTPClient(),
		Scheme:            c.mgr.GetScheme(),
		Mapper:            c.mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{in: {}},
		DefaultTransform:  func(o any) (any, error) { return trimmed(o), nil },
	})
	if err != nil {
		return err
	}
	// The watch outlives the reconciliation that begins it, and ends with the controller.
	ctx, stop := context.WithCancel(c.ctx)
	informer, err := pods.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		stop()
		return err
	}
	// AddAfter keeps the earliest time of a network: any number of changes lead to one reconciliation in settleTime.
	changed := func(any) { c.enqueue(n.Name, settleTime) }
	handled, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(before, after any) {
			if !slices.Equal(running(before), running(after)) {
				changed(after)
			}
		},
		DeleteFunc: changed,
	})
	if err != nil {
		stop()
		return err
	}
	c.all[n.Name] = &followed{uid: n.UID, stop: stop, pods: pods, synced: handled.HasSynced}
	go func() { _ = pods.Start(ctx) }() // it ends with ctx
	// A namespace without pods has no event: the complete list causes the first reconciliation.
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
			c.enqueue(n.Name, 0)
		}
	}()
	return nil
}

func (c *containers) enqueue(network string, after time.Duration) {
	c.queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: network}}, after)
}

// runningIDs returns the IDs of all running containers in a network, sorted, and whether they are known yet.
func (c *containers) runningIDs(ctx context.Context, network string, uid types.UID) (ids []string, known bool) {
	c.mu.Lock()
	f := c.all[network]
	c.mu.Unlock()
	var pods corev1.PodList
	// An incomplete list would show containers that run as ended. Nothing changes the listed pods, so they are not copied.
	if f == nil || f.uid != uid || !f.synced() || f.pods.List(ctx, &pods, client.UnsafeDisableDeepCopy) != nil {
		return nil, false
	}
	for i := range pods.Items {
		ids = append(ids, running(&pods.Items[i])...)
	}
	slices.Sort(ids)
	return ids, true
}

// leave stops the watch of a network.
func (c *containers) leave(network string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.all[network]; f != nil {
		f.stop()
		delete(c.all, network)
	}
}

// running returns the IDs of the running containers of a trimmed pod.
func running(o any) (ids []string) {
	for _, s := range o.(*corev1.Pod).Status.ContainerStatuses {
		ids = append(ids, s.ContainerID)
	}
	return ids
}

// trimmed keeps only the fields of a pod that running reads.
func trimmed(o any) any {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o
	}
	bare := &corev1.Pod{}
	bare.Namespace, bare.Name, bare.UID, bare.ResourceVersion = pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.State.Running != nil && s.ContainerID != "" {
			bare.Status.ContainerStatuses = append(bare.Status.ContainerStatuses, corev1.ContainerStatus{ContainerID: s.ContainerID})
		}
	}
	return bare
}
