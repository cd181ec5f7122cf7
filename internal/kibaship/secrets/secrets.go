// Package secrets knows which Secrets there are in the namespaces of Projects, by their
// names alone. A watch of all Secrets of a cluster would need the right to read them all; the
// operator has rights in the namespaces of Projects only, so each that matters has a watch of
// its own, of metadata.
package secrets

import (
	"context"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Watches holds the watches of the namespaces in use.
type Watches struct {
	client metadata.Interface
	// lifetime is the life of all watches; end ends it.
	lifetime context.Context //nolint:containedctx // watches outlive the pass that asks for them
	end      context.CancelFunc

	// mu guards open, and the users of each watch.
	mu   sync.Mutex
	open map[string]*watch

	// enqueuers are complete before the first watch is opened, so they are read without the lock.
	enqueuers []chan event.GenericEvent
}

// watch is the watch of one namespace.
type watch struct {
	// users are the users that asked after their last Close
	users    map[string]bool
	informer toolscache.SharedIndexInformer
	end      context.CancelFunc
}

// New returns Watches, none of them open. They end with the Runnable.
func New(config *rest.Config, http *http.Client) (*Watches, error) {
	c, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), http)
	if err != nil {
		return nil, err
	}
	lifetime, end := context.WithCancel(context.Background())
	return &Watches{client: c, lifetime: lifetime, end: end, open: map[string]*watch{}}, nil
}

// Start implements manager.Runnable: it ends the watches with the operator.
func (w *Watches) Start(ctx context.Context) error {
	<-ctx.Done()
	w.end()
	return nil
}

// Source enqueues a controller's requests when a Secret comes or goes, and, with an object that has no name,
// when all of a namespace are known. It is to be called before the controllers start.
func (w *Watches) Source(handle handler.EventHandler) source.Source {
	enqueuer := make(chan event.GenericEvent)
	w.enqueuers = append(w.enqueuers, enqueuer)
	return source.Channel(enqueuer, handle)
}

// Missing returns the names that no Secret of the namespace has, in their order. While the
// namespace is not listed yet, known is false; Source sends an event when it is. The watch stays
// open for the user until that user closes it. The answer comes from memory. If a Secret came a moment ago, its event is still to
// follow.
func (w *Watches) Missing(user, namespace string, names []string) (missing []string, known bool) {
	o := w.ensure(user, namespace)
	if !o.informer.HasSynced() {
		return nil, false
	}
	for _, name := range names {
		if _, there, err := o.informer.GetStore().GetByKey(namespace + "/" + name); err != nil || !there {
			missing = append(missing, name)
		}
	}
	return slices.Clip(missing), true
}

// Close is called where a user needs no Secret of a namespace any more. With its last user the
// watch ends.
func (w *Watches) Close(user, namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.open[namespace]
	if o == nil {
		return
	}
	if delete(o.users, user); len(o.users) == 0 {
		o.end()
		delete(w.open, namespace)
	}
}

// ensure returns the watch of a namespace, which it opens if need be. The lock is held until the watch is in the map: two users
// never open two watches of a namespace.
func (w *Watches) ensure(user, namespace string) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.open[namespace]; o != nil {
		o.users[user] = true
		return o
	}
	// The informer belongs to this namespace alone, because the operator has the right to read Secrets in namespaces
	// of Projects and nowhere else.
	ctx, end := context.WithCancel(w.lifetime)
	informer := metadatainformer.NewFilteredMetadataInformer(w.client,
		corev1.SchemeGroupVersion.WithResource("secrets"), namespace, 0, toolscache.Indexers{}, nil).Informer()
	// These fail for an informer that runs alone.
	_ = informer.SetTransform(nameAlone)
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *toolscache.Reflector, err error) {
		log.FromContext(ctx).V(1).Info("the Secrets of a namespace cannot be watched, will be tried again", "namespace", namespace, "error", err.Error())
	})
	_, _ = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if !initial { // all of them are reported together, below
				w.enqueue(ctx, o)
			}
		},
		DeleteFunc: func(o any) { w.enqueue(ctx, o) },
	})
	o := &watch{users: map[string]bool{user: true}, informer: informer, end: end}
	w.open[namespace] = o
	go informer.RunWithContext(ctx)
	go func() {
		if toolscache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
			w.enqueue(ctx, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}})
		}
	}()
	return o
}

// enqueue takes an object to the controllers.
func (w *Watches) enqueue(ctx context.Context, o any) {
	if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	object, ok := o.(client.Object)
	if !ok {
		return
	}
	// Sending blocks while a controller starts or is busy; the end of the watch releases it.
	for _, enqueuer := range w.enqueuers {
		select {
		case enqueuer <- event.GenericEvent{Object: object}:
		case <-ctx.Done():
			return
		}
	}
}

// nameAlone keeps of a Secret that it is there: annotations may hold it once more, as kubectl
// wrote it.
func nameAlone(o any) (any, error) {
	full, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta:   full.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Namespace: full.Namespace, Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion},
	}, nil
}
