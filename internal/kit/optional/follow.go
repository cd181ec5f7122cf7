package optional

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/backoff"
)

// Definition is the kind CustomResourceDefinition. A Follower reads only its metadata.
func Definition() *metav1.PartialObjectMetadata {
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{
		Group: apiextensionsv1.GroupName, Version: "v1", Kind: "CustomResourceDefinition",
	})
	return definition
}

// servedDelays are the delays between checks whether an API with a CRD is served: there is no
// event for it. An API that is being installed is served soon. If the CRD has only other
// versions, it is not served before the CRD changes.
var servedDelays = backoff.Exponential{First: 500 * time.Millisecond, Max: time.Minute}

// Follower follows the CRDs of optional kinds, without a restart of the operator: it opens the
// watch of a kind when its API is installed, records in the Presence that a kind is missing when
// it is removed, and enqueues the resources that may need it, or may work without it. It needs
// the right to list and watch customresourcedefinitions.
//
// The controllers that use the kinds are set up between New and Setup: they watch the kinds of
// Served, and use Enqueues as a source. Its controller has one worker, so the maps have no lock.
type Follower struct {
	mgr      ctrl.Manager
	kinds    map[string]client.Object
	presence *Presence
	// direct reads from the API server, also missing kinds.
	direct    client.Reader
	client    client.Reader
	informers cache.Informers
	scheme    *runtime.Scheme
	open      func(client.Object) error
	enqueuers []enqueuer
	// watched are the CRDs of the kinds whose watch was opened. It stays open while
	// an API is missing, and reconnects by itself.
	watched map[string]bool
	// announced are the CRDs for which all resources were enqueued. A CRD that is
	// removed and installed again has another UID.
	announced map[string]types.UID
	// removed are the CRDs for whose removal all resources were enqueued.
	removed map[string]bool
	// attempts are the failed checks of a version of a CRD, by
	// its name.
	attempts map[string]attempts
}

type attempts struct {
	resourceVersion string
	number          int
}

// enqueuer enqueues the resources of a list in one controller.
type enqueuer struct {
	list func() client.ObjectList
	to   chan event.GenericEvent
}

// fromStart replaces the UID of a CRD that existed when the operator started.
const fromStart types.UID = "from the start"

// New returns a Follower of kinds, by the names of their CRDs, and asks the API server which of
// them it serves. Kinds are unstructured or in the scheme of mgr. presence is the Presence of the
// clients and readers that use the kinds; direct reads from the API server without it.
func New(mgr ctrl.Manager, presence *Presence, direct client.Reader, kinds map[string]client.Object) (*Follower, error) {
	f := &Follower{
		mgr: mgr, kinds: kinds, presence: presence, direct: direct,
		client: mgr.GetClient(), informers: mgr.GetCache(), scheme: mgr.GetScheme(),
		watched: map[string]bool{}, announced: map[string]types.UID{}, removed: map[string]bool{}, attempts: map[string]attempts{},
	}
	for definition, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, f.scheme)
		if err != nil {
			return nil, err
		}
		_, err = mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		notServed := meta.IsNoMatchError(err)
		if err != nil && !notServed {
			return nil, fmt.Errorf("look up %s: %w", definition, err)
		}
		if !notServed {
			f.watched[definition], f.announced[definition] = true, fromStart
		}
		// It is set before any controller starts: a request for a missing kind would otherwise ask for all served APIs each time.
		presence.Set(gvk, notServed)
	}
	return f, nil
}

// Served returns the kinds that were served when New was called.
func (f *Follower) Served() []client.Object {
	var served []client.Object
	for definition := range f.watched {
		served = append(served, f.kinds[definition])
	}
	return served
}

// Enqueues is a source of requests for all resources of list. It sends them each time when an
// API is installed, since the status of a resource that just found it missing does not show that
// yet; and each time when one is removed, since some resources can work without it.
func (f *Follower) Enqueues(list func() client.ObjectList) source.Source {
	w := enqueuer{list, make(chan event.GenericEvent)}
	f.enqueuers = append(f.enqueuers, w)
	return source.Channel(w.to, &handler.EnqueueRequestForObject{})
}

// Setup adds the controller that follows the CRDs. Its name must be unique in the process. open
// opens the watch of a kind that was missing at the start, in every controller that uses it; it
// is called once for each kind, unless it fails.
func (f *Follower) Setup(name string, open func(client.Object) error) error {
	f.open = open
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return f.kinds[o.GetName()] != nil })
	return ctrl.NewControllerManagedBy(f.mgr).
		Named(name).
		For(Definition(), builder.WithPredicates(ours)).
		Complete(f)
}

// Reconcile follows the CRD of one optional kind.
func (f *Follower) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	kind := f.kinds[req.Name]
	gvk, err := apiutil.GVKForObject(kind, f.scheme)
	if err != nil {
		return ctrl.Result{}, err
	}
	definition := Definition()
	err = f.client.Get(ctx, req.NamespacedName, definition)
	if apierrors.IsNotFound(err) || err == nil && definition.DeletionTimestamp != nil {
		// It comes before the resources are enqueued: their reconciliations must find the kind missing.
		f.presence.Set(gvk, true)
		delete(f.announced, req.Name)
		delete(f.attempts, req.Name)
		if f.removed[req.Name] {
			return ctrl.Result{}, nil // a CRD is deleted in two steps
		}
		log.FromContext(ctx).Info("an API was removed: resources that need it wait", "definition", req.Name)
		if err := f.enqueueAll(ctx); err != nil {
			return ctrl.Result{}, err
		}
		// It is set after all were enqueued. If the process stops in between, the next one finds the kind missing at its start.
		f.removed[req.Name] = true
		return ctrl.Result{}, nil
	}
	if err != nil || f.announced[req.Name] == definition.UID {
		return ctrl.Result{}, err
	}
	if f.announced[req.Name] == fromStart {
		// Enqueueing all resources now would delay new events behind the backlog of
		// the start.
		f.announced[req.Name] = definition.UID
		return ctrl.Result{}, nil
	}

	if ok, err := f.serves(ctx, gvk); err != nil || !ok {
		return ctrl.Result{RequeueAfter: f.delay(definition)}, err
	}
	opened := !f.watched[req.Name]
	if opened {
		if err := f.open(kind); err != nil {
			return ctrl.Result{}, fmt.Errorf("watch %s: %w", req.Name, err)
		}
		f.watched[req.Name] = true
	}
	if !opened && !f.follows(ctx, kind, definition) {
		return ctrl.Result{RequeueAfter: servedDelays.First}, nil // no request
	}
	delete(f.attempts, req.Name)
	// It comes after the watch is open and before the resources are enqueued: their first request may succeed, and their events
	// arrive.
	f.presence.Set(gvk, false)
	if err := f.enqueueAll(ctx); err != nil {
		return ctrl.Result{}, err
	}
	f.announced[req.Name] = definition.UID
	delete(f.removed, req.Name)
	log.FromContext(ctx).Info("an API was installed: resources that waited for it resume", "definition", req.Name)
	return ctrl.Result{}, nil
}

// delay returns the delay after a failed check. It grows until the CRD changes.
func (f *Follower) delay(definition client.Object) time.Duration {
	l := f.attempts[definition.GetName()]
	if l.resourceVersion != definition.GetResourceVersion() {
		l = attempts{resourceVersion: definition.GetResourceVersion()}
	}
	l.number++
	f.attempts[definition.GetName()] = l
	return servedDelays.After(l.number)
}

// serves asks the API server itself: a known kind may have been removed since.
func (f *Follower) serves(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err := f.direct.List(ctx, list, client.Limit(1))
	if meta.IsNoMatchError(err) || apply.KindUnknown(err) {
		return false, nil
	}
	return err == nil, err
}

// follows reports whether the watch of a kind has received data since the CRD was
// created. A watch that broke when the API was removed takes up to a minute to
// reconnect, and until then it does not show our writes.
func (f *Follower) follows(ctx context.Context, kind client.Object, definition *metav1.PartialObjectMetadata) bool {
	informer, err := f.informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return false
	}
	seen, ok := informer.(interface{ LastSyncResourceVersion() string })
	if !ok {
		return informer.HasSynced()
	}
	order, err := resourceversion.CompareResourceVersion(seen.LastSyncResourceVersion(), definition.ResourceVersion)
	return err == nil && order >= 0
}

// enqueueAll enqueues all resources in their controllers.
func (f *Follower) enqueueAll(ctx context.Context) error {
	for _, w := range f.enqueuers {
		list := w.list()
		if err := f.client.List(ctx, list, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
			return err
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			select {
			case w.to <- event.GenericEvent{Object: item.(client.Object)}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}); err != nil {
			return err
		}
	}
	return nil
}
