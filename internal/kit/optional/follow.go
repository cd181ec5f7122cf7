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

// Definition is the kind CustomResourceDefinition, of which a Follower looks at the
// metadata alone.
func Definition() *metav1.PartialObjectMetadata {
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{
		Group: apiextensionsv1.GroupName, Version: "v1", Kind: "CustomResourceDefinition",
	})
	return definition
}

// The pauses between looks whether an API whose definition exists can be used: no event
// tells. One that is being installed is there in a moment. One whose definition has only
// another version is not before the definition changes.
var servedDelays = backoff.Exponential{First: 500 * time.Millisecond, Max: time.Minute}

// Follower follows the definitions of optional kinds, without a restart: it has the watch
// of a kind opened when its API is installed, notes in the Presence that a kind is missing
// when it is removed, and wakes the resources that may need it, or may do without it. It
// needs the right to list and watch customresourcedefinitions.
//
// The controllers that use the kinds are set up between New and Setup: they watch the
// kinds that Served names, and have a source of Wakes.
type Follower struct {
	mgr      ctrl.Manager
	kinds    map[string]client.Object
	presence *Presence
	// direct asks the API server also for kinds that are missing.
	direct    client.Reader
	client    client.Reader
	informers cache.Informers
	scheme    *runtime.Scheme
	open      func(client.Object) error
	enqueuers []enqueuer
	// watched are the definitions of the kinds whose watch was opened. It stays
	// open while an API is missing, and connects again by itself.
	watched map[string]bool
	// announced are the definitions that every resource knows of. One that is
	// removed and installed again has another UID.
	announced map[string]types.UID
	// removed are the definitions of whose removal every resource knows.
	removed map[string]bool
	// looks are how often a version of a definition was looked at without success, by
	// its name.
	attempts map[string]attempts
}

type attempts struct {
	resourceVersion string
	number          int
}

// enqueuer takes the resources of a list to the controller that asked for them.
type enqueuer struct {
	list func() client.ObjectList
	to   chan event.GenericEvent
}

// fromTheStart stands for the UID of a definition that was there before the
// resources were.
const fromStart types.UID = "from the start"

// New returns a Follower of kinds, each with the name of its definition, which may be
// unstructured or of the scheme of mgr, and asks the API server which of them it serves.
// presence is what the clients and readers of those who use the kinds know missing ones
// by; direct reads from the API server past it.
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
		presence.Set(gvk, notServed)
	}
	return f, nil
}

// Served returns the kinds that were there when New looked.
func (f *Follower) Served() []client.Object {
	var served []client.Object
	for definition := range f.watched {
		served = append(served, f.kinds[definition])
	}
	return served
}

// Wakes is a source of requests for all the resources that list lists, each time when an
// API is there, since one that is just finding it missing does not show that yet; and each
// time when one is removed, since some can do without it in another way.
func (f *Follower) Enqueues(list func() client.ObjectList) source.Source {
	w := enqueuer{list, make(chan event.GenericEvent)}
	f.enqueuers = append(f.enqueuers, w)
	return source.Channel(w.to, &handler.EnqueueRequestForObject{})
}

// Setup adds the controller that follows the definitions. Its name is unique in the
// process. open opens the watch of a kind that was missing at the start, in every
// controller that uses it; it is called once for each, unless it fails.
func (f *Follower) Setup(name string, open func(client.Object) error) error {
	f.open = open
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return f.kinds[o.GetName()] != nil })
	return ctrl.NewControllerManagedBy(f.mgr).
		Named(name).
		For(Definition(), builder.WithPredicates(ours)).
		Complete(f)
}

// Reconcile follows the definition of one optional kind.
func (f *Follower) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	kind := f.kinds[req.Name]
	gvk, err := apiutil.GVKForObject(kind, f.scheme)
	if err != nil {
		return ctrl.Result{}, err
	}
	definition := Definition()
	err = f.client.Get(ctx, req.NamespacedName, definition)
	if apierrors.IsNotFound(err) || err == nil && definition.DeletionTimestamp != nil {
		f.presence.Set(gvk, true)
		delete(f.announced, req.Name)
		delete(f.attempts, req.Name)
		if f.removed[req.Name] {
			return ctrl.Result{}, nil // a definition is deleted in two steps
		}
		log.FromContext(ctx).Info("an API was removed: what needs it waits for it", "definition", req.Name)
		if err := f.enqueueAll(ctx); err != nil {
			return ctrl.Result{}, err
		}
		f.removed[req.Name] = true
		return ctrl.Result{}, nil
	}
	if err != nil || f.announced[req.Name] == definition.UID {
		return ctrl.Result{}, err
	}
	if f.announced[req.Name] == fromStart {
		// To wake everybody now would put new events behind the backlog of the
		// start.
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
	f.presence.Set(gvk, false)
	if err := f.enqueueAll(ctx); err != nil {
		return ctrl.Result{}, err
	}
	f.announced[req.Name] = definition.UID
	delete(f.removed, req.Name)
	log.FromContext(ctx).Info("an API is there: what waited for it continues", "definition", req.Name)
	return ctrl.Result{}, nil
}

// pause returns when to look again after a look without success. It grows until the
// definition changes.
func (f *Follower) delay(definition client.Object) time.Duration {
	l := f.attempts[definition.GetName()]
	if l.resourceVersion != definition.GetResourceVersion() {
		l = attempts{resourceVersion: definition.GetResourceVersion()}
	}
	l.number++
	f.attempts[definition.GetName()] = l
	return servedDelays.After(l.number)
}

// serves asks the API server itself: what was looked up before may have been
// removed since.
func (f *Follower) serves(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err := f.direct.List(ctx, list, client.Limit(1))
	if meta.IsNoMatchError(err) || apply.KindUnknown(err) {
		return false, nil
	}
	return err == nil, err
}

// follows reports whether the watch of a kind has seen the API server since the
// definition was made. One that was cut off when the API was removed takes up to
// a minute to connect again, and until then it shows nothing that we write.
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

// wakeAll takes every resource to its controllers.
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
